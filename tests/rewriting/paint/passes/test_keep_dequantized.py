"""A product with weights of a few bits is low together with them, or not at all."""

from __future__ import annotations

from rewrite_text import rewritten

FEW = f"uint4[4,4] few = {{{', '.join(['51'] * 8)}}}, float s = {{0.125}}"


def reason(output: str = "") -> str:
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[4,4] x) => (float[4,4] y{output}) <{FEW}> {{
            d = DequantizeLinear(few, s) [product] y = MatMul(x, d) }}"""
    node = next(n for n in rewritten(text).report.nodes if n.name == "product")
    return node.variables["T"].reason


def test_a_product_whose_weights_are_an_output_stays_float32() -> None:
    assert reason() == "allow-list"
    assert reason(", float[4,4] d") == "quantized"
