"""Attributes that repeat an element type agree with the paint."""

from __future__ import annotations

import pytest
from rewrite_text import rewritten, text_of


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_layer_normalization_keeps_its_statistics_in_stash_type(precision: str) -> None:
    text = """g (float[2,4] x) => (float[2,4] y, float[2,1] z) <float[4] s = {1,1,1,1},
      float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> {
      h = MatMul(x, w) l, m, v = LayerNormalization<stash_type = 1>(h, s)
      y = MatMul(l, w) z = Exp(m) }"""
    result = rewritten(text, precision=precision)
    node = next(n for n in result.report.nodes if n.op == "LayerNormalization")
    assert {name: v.dtype for name, v in node.variables.items()} == {"T": precision, "U": "float32"}
    assert "stash_type: int = 1" in text_of(result)
