"""A DequantizeLinear of constants becomes low where all that reads it is."""

from __future__ import annotations

import pytest
from rewrite_text import rewritten

W = f"int8[4,4] w = {{{', '.join(['3'] * 16)}}}, float s = {{0.125}}, float four = {{4}}"


def reason(body: str, inputs: str = "float[4,4] x", opset: int = 21, outputs: str = "") -> str:
    """Return why the DequantizeLinear has its type."""
    text = f"""<ir_version: 10, opset_import: ["" : {opset}]>
        g ({inputs}) => (float[4,4] y{outputs}) <{W}> {{ [dq] d = DequantizeLinear({body} }}"""
    node = next(n for n in rewritten(text).report.nodes if n.name == "dq")
    return next(iter(node.variables.values())).reason


@pytest.mark.parametrize("opset", [19, 21, 23])
def test_weights_of_a_low_product_are_low(opset: int) -> None:
    assert reason("w, s) y = MatMul(x, d)", opset=opset) == "low-scales"
    assert reason("w, s) t = Transpose(d) y = MatMul(x, t)", opset=opset) == "low-scales"


@pytest.mark.parametrize(
    ("body", "inputs", "outputs"),
    [
        ("w, s) y = MatMul(x, d)", "float[4,4] x", ", float[4,4] d"),
        ("w, s) e = Exp(d) z = MatMul(x, d) y = Add(z, e)", "float[4,4] x", ""),
        ("w, t) y = MatMul(x, d)", "float[4,4] x, float t", ""),
        ("v, s) y = MatMul(x, d)", "float[4,4] x, int8[4,4] v", ""),
    ],
)
def test_what_else_is_read_or_fed_stays_float32(body: str, inputs: str, outputs: str) -> None:
    assert reason(body, inputs, outputs=outputs) == "unlisted"


def test_scales_are_float32_before_opset_19() -> None:
    assert reason("w, s) y = MatMul(x, d)", opset=18) == "unlisted"
