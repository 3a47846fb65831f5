"""Attributes that repeat an element type agree with the paint."""

from __future__ import annotations

from typing import Any

import pytest
from rewrite_text import rewritten, text_of

import amp_rewrite as amp
from amp_rewrite.dtypes import BFLOAT16


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


NORMS = """g (float[2,4] x) => (float[2,4] y, float[2,1] z) <float[4] s = {1,1,1,1},
  float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> {
  h = MatMul(x, w) l = LayerNormalization(h, s) y = MatMul(l, w) z = ReduceMax(x) }"""


def stash_types(text: str, **options: Any) -> list[int | None]:
    result = rewritten(text, precision="bfloat16", **options)
    nodes = [n for n in result.model.graph if n.op_type.endswith("LayerNormalization")]
    return [n.attributes.get_int("stash_type", None) for n in nodes]


def test_openvino_reads_what_is_normalised_without_a_cast() -> None:
    """It casts to stash_type first, and computes in float32 whatever that says."""
    assert stash_types(NORMS, target="openvino") == [BFLOAT16.number]
    assert stash_types(NORMS, target="openvino", deny_ops=["LayerNormalization"]) == [None]
    read = NORMS.replace("l = Layer", "l, m = Layer").replace("ReduceMax(x)", "Exp(m)")
    assert stash_types(read, target="openvino") == [None], "its mean is read"
    spelled = NORMS.replace("Normalization(", "Normalization<stash_type = 1>(")
    assert stash_types(spelled, target="openvino") == [BFLOAT16.number]


@pytest.mark.parametrize("target", ["cuda", "cpu", "tensorrt", "openvino,cuda"])
def test_elsewhere_the_stash_type_stays(target: str) -> None:
    result = rewritten(NORMS, precision="bfloat16", target=target)
    (norm,) = [n for n in result.model.graph if n.op_type == "LayerNormalization"]
    assert norm.attributes.get_int("stash_type", None) is None


def test_a_second_rewrite_leaves_the_stash_type() -> None:
    options: Any = {"precision": "bfloat16", "target": "openvino"}
    first = rewritten(NORMS, **options)
    second = amp.rewrite(first.model, **options)
    assert text_of(second) == text_of(first)
