"""Made-up inputs of decoders with caches run without data."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import amp_rewrite as amp
from amp_rewrite.numerics.emulate import Evaluator
from amp_rewrite.numerics.inputs.free_sizes import FreeSizes
from amp_rewrite.numerics.inputs.linked_sizes import Steps
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


SUM = """<num_scan_inputs = 1{axes}, body = b (float[3] s, float[3] e) => (float[3] a, float[3] o)
  {{ a = Add(s, e) o = Identity(a) }}>"""


def model_of(text: str, opset: int = 17) -> Any:
    return amp.load(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>{text}'))


def scanned(inputs: str, before: str, scan: str, axes: str = "") -> str:
    return f"""g ({inputs}) => (float[3] last, float[t,3] y)
      <float[3] zero = {{0, 0, 0}}, int64[1] first = {{0}}, int64[1] second = {{1}},
       int64[3] shape = {{0, 1, 3}}, float[3,3] w = {{1, 0, 0, 0, 1, 0, 0, 0, 1}}>
      {{ {before} last, y = Scan {SUM.format(axes=axes)} (zero, {scan}) }}"""


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        (scanned("float[T,3] u", "", "u"), {"u": (0,)}),
        (scanned("float[N,3] u", "", "u"), {"u": (0,)}),
        (scanned("float[3,T] u", "", "u", ", scan_input_axes = [1]"), {"u": (1,)}),
        (scanned("float[3,T] u", "v = Transpose <perm = [1, 0]> (u)", "v"), {"u": (1,)}),
        (scanned("float[3,T] u", "v = Transpose (u)", "v"), {"u": (1,)}),
        (scanned("float[T,1,3] u", "v = Squeeze(u, second)", "v"), {"u": (0,)}),
        (scanned("float[1,T,3] u", "v = Squeeze(u, first)", "v"), {"u": (1,)}),
        (scanned("float[T,3] u", "v = Reshape(u, shape) x = Squeeze(v, second)", "x"), {"u": (0,)}),
        (scanned("float[T,3] u", "v = MatMul(u, w) x = Tanh(v)", "x"), {"u": (0,)}),
        (scanned("float[T,3] u", "v = Gemm(u, w)", "v"), {"u": (0,)}),
        (scanned("float[T,3] u, float[3] b", "v = Add(b, u)", "v"), {"u": (0,)}),
        (scanned("int64[T] ids", "v = Gather(w, ids)", "v"), {"ids": (0,)}),
        (
            scanned("float[N,3,A,B] u", "v = ReduceMean <axes = [2, 3], keepdims = 0> (u)", "v"),
            {"u": (0,)},
        ),
        (scanned("float[9,3] u", "", "u"), {}),
        (scanned("float[T,3] u", "n = Shape(u) v = ConstantOfShape(n)", "v"), {"u": (0,)}),
    ],
)
def test_the_axis_of_a_scan_is_followed_to_its_input(text: str, axes: Any) -> None:
    model = model_of(text)
    assert Steps.of(model).axes == axes
    for name in axes:
        feeds = PlausibleInputs.of(model).runnable(Evaluator(model).run)[1]
        assert feeds[name].shape[axes[name][0]] == 16


def looped(
    inputs: str, before: str, trips: str = "trips", go_on: str = "ok", then: str = ""
) -> str:
    then = then or "again = Identity(go)"
    return f"""g ({inputs}) => (float y)
      <bool yes = {{1}}, int64 zero = {{0}}, int64 one = {{1}}, int64[1] ones = {{1}},
       float h = {{0.5}}, int64 most = {{9223372036854775807}}> {{
      {before}
      y, last = Loop <body = b (int64 i, bool go, float s, int64 k) =>
        (bool again, float t, int64 l) {{ t = Add(s, h) l = Add(k, one) {then} }}>
        ({trips}, {go_on}, h, zero) }}"""


COUNTED = [
    ("int64 n", "trips = Identity(n)"),
    ("int64[1] n", "trips = Squeeze(n)"),
    ("int32 n", "trips = Cast <to = 7> (n)"),
    ("float n", "f = Floor(n) trips = Cast <to = 7> (f)"),
    ("int64[B] n", "trips = ReduceMax <keepdims = 0> (n)"),
]


@pytest.mark.parametrize(("inputs", "before"), COUNTED)
def test_a_number_of_iterations_is_16(inputs: str, before: str) -> None:
    model = model_of(looped(inputs, before, go_on="yes"))
    assert Steps.of(model).counts == {"n"}
    made = PlausibleInputs.of(model)
    run = Evaluator(model).run
    assert float(run(made.feeds(FreeSizes()))["y"]) == 8.5
    assert float(run(made.feeds(FreeSizes(length=1000)))["y"]) == 500.5


@pytest.mark.parametrize(
    "then",
    [
        "again = Less(l, n)",
        "b = GreaterOrEqual(l, n) again = Not(b)",
        "lf = Cast <to = 1> (l) nf = Cast <to = 1> (n) c = Less(lf, nf) again = And(c, go)",
    ],
)
def test_the_number_that_a_condition_compares_with_is_16(then: str) -> None:
    model = model_of(looped("int64 n", "", "most", "yes", then))
    assert Steps.of(model).counts == {"n"}
    assert float(Evaluator(model).run(PlausibleInputs.of(model).feeds(FreeSizes()))["y"]) == 8.5


@pytest.mark.parametrize(
    "before",
    [
        "s = Shape(x) trips = Gather(s, zero)",
        "s = Shape <start = 0, end = 1> (x) trips = Squeeze(s)",
        "s = Shape(x) a = Constant <value_ints = [0]> () c = Slice(s, a, ones) trips = Squeeze(c)",
        "v = Transpose(x) s = Shape(v) trips = Gather(s, one)",
    ],
)
def test_a_loop_may_run_once_for_each_row(before: str) -> None:
    model = model_of(looped("float[N,2] x", before, go_on="yes"))
    assert Steps.of(model).axes == {"x": (0,)}
    assert PlausibleInputs.of(model).feeds(FreeSizes())["x"].shape == (16, 2)


def lstm(inputs: str, before: str, x: str) -> Any:
    weights = ",".join(["0.5"] * 8)
    return model_of(
        f"""g ({inputs}) => (float[t,1,n,2] y) {{
        w = Constant <value = float[1,8,1] {{{weights}}}> ()
        r = Constant <value = float[1,8,2] {{{weights},{weights}}}> ()
        {before} y, h, c = LSTM <hidden_size = 2> ({x}, w, r) }}"""
    )


def test_recurrent_operators_take_steps() -> None:
    first = lstm("float[T,N,1] x", "", "x")
    assert PlausibleInputs.of(first).feeds(FreeSizes())["x"].shape == (16, 1, 1)
    second = lstm("float[N,T,1] x", "v = Transpose <perm = [1, 0, 2]> (x)", "v")
    assert PlausibleInputs.of(second).feeds(FreeSizes())["x"].shape == (1, 16, 1)


def test_the_side_of_an_image_that_is_read_in_steps_stays_the_side_of_an_image() -> None:
    before = """a = Constant <value_ints = [0]> () two = Constant <value_ints = [2]> ()
      m = ReduceMean <axes = [1, 2], keepdims = 0> (image) e = Unsqueeze(m, two)
      v = Transpose <perm = [1, 0, 2]> (e)"""
    model = lstm("float[N,3,H,W] image", before, "v")
    assert PlausibleInputs.of(model).feeds(FreeSizes())["image"].shape == (1, 3, 224, 224)
