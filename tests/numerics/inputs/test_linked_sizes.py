"""Made-up inputs of decoders with caches run without data."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import amp_rewrite as amp
from amp_rewrite.numerics.emulate import Evaluator
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs

HEADER = '<ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1]>'


def parsed(text: str, **shapes: tuple[int, ...]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(HEADER + text)
    rng = np.random.default_rng(0)
    for name, shape in shapes.items():
        weight = (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, name))
    return model


def made_up(model: onnx.ModelProto) -> dict[str, Any]:
    """Return the inputs on which a model runs."""
    loaded = amp.load(model)
    return PlausibleInputs.of(loaded).runnable(Evaluator(loaded).run)[1]


CACHED = """g (int64[{ids}] input_ids, int64[{mask}] attention_mask, float[{past}] past_key,
     float[{past}] past_value) => (float[b,h,s,d] y, float[b,h,t,d] key, float[b,h,t,d] value)
  <int64[4] heads = {{0, -1, 2, 8}}, int64[2] axes = {{1, 2}}, float low = {{-10000}},
   float one = {{1}}> {{
    e = Gather(table, input_ids) r = Reshape(e, heads)
    q = Transpose <perm = [0, 2, 1, 3]> (r)
    key = Concat <axis = {axis}> (past_key, q) value = Concat <axis = 2> (past_value, q)
    kt = Transpose <perm = [0, 1, 3, 2]> (key) s = MatMul(q, kt)
    m = Cast <to = 1> (attention_mask) i = Sub(one, m) f = Mul(i, low) w = Unsqueeze(f, axes)
    a = Add(s, w) p = Softmax(a) y = MatMul(p, value) }}"""


@pytest.mark.parametrize("axis", [2, -2])
@pytest.mark.parametrize(
    ("ids", "mask", "past"),
    [
        ("batch, seq", "batch, total", "batch, 2, past, 8"),
        ("batch, sequence_length", "batch, attention_length", "batch, 2, past_length, 8"),
        ("1, s0", "1, s2", "1, 2, s1, 8"),
        ("1, 1", "1, m", "1, 2, p, 8"),
    ],
)
def test_a_mask_is_as_long_as_the_cache_and_the_tokens(
    ids: str, mask: str, past: str, axis: int
) -> None:
    model = parsed(CACHED.format(ids=ids, mask=mask, past=past, axis=axis), table=(50, 16))
    feeds = made_up(model)
    length = feeds["past_key"].shape[2]
    assert length > 1
    assert feeds["past_value"].shape[2] == length
    assert feeds["attention_mask"].shape[1] == length + feeds["input_ids"].shape[1]
    assert amp.verify(model, amp.rewrite(model).model, stress=False).ok


GROUPED = """g (int64[batch, seq] ids, float[batch, 2, past, 16] past_key,
     float[batch, 2, past, 16] past_value, int32[batch] seqlens_k, int32[1] total_sequence_length)
   => (float[batch, seq, 32] y, float[batch, 2, t, 16] key, float[batch, 2, t, 16] value) {
    e = Gather(table, ids) q = MatMul(e, wq) k = MatMul(e, wk) v = MatMul(e, wv)
    y, key, value = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2>
      (q, k, v, past_key, past_value, seqlens_k, total_sequence_length) }"""


def test_lengths_that_grouped_attention_counts_are_those_of_the_cache_and_the_tokens() -> None:
    squares = dict.fromkeys(("wq", "wk", "wv"), (32, 32))
    feeds = made_up(parsed(GROUPED, table=(50, 32), **squares))
    total = feeds["past_key"].shape[2] + feeds["ids"].shape[1]
    assert feeds["total_sequence_length"] == total
    assert (feeds["seqlens_k"] == total - 1).all()
