"""A product with weights of a few bits is low together with them, or not at all."""

from __future__ import annotations

from pass_marks import context_of, marks_of, painting_of
from rewrite_text import parse, rewritten

from amp_rewrite.rewriting.paint.passes.keep_dequantized import KeepDequantized

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


def test_weights_that_are_low_do_not_hide_others() -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[4,4] x) => (float[4,4] y) <{FEW}> {{
            [first] d = DequantizeLinear(few, s) a = MatMul(x, d)
            [second] e = DequantizeLinear(few, s) y = MatMul(a, e) }}"""
    context = context_of(parse(text))
    for low, expected in (("day", {"y": "second"}), ("eay", {"a": "first"}), ("deay", {})):
        found = marks_of(KeepDequantized(), context, painting_of(context, low))
        names = {value: str(mark.detail).split()[1].strip(",") for value, mark in found.items()}
        assert names == expected
