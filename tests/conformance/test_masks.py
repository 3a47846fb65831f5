"""Masks in front of a Softmax: every row comes out as in float32, those masked as a whole too."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from named_nodes import WAYS, error

import amp_rewrite as amp
from amp_rewrite.dtypes import BFLOAT16, FLOAT16, Precision

Array = np.ndarray[Any, Any]

FILLS = [-1e4, -65504.0, -7e4, -1e9, -1.7e38, -3.4e38]

ONE_MASK = "m = Where(keep, zero, fill) s = Add(scores, m)"
TWO_MASKS = """m = Where(keep, zero, fill) n = Where(causal, zero, fill)
               r = Add(scores, n) s = Add(r, m)"""
SUM_OF_MASKS = """m = Where(keep, zero, fill) n = Where(causal, zero, fill) o = Add(m, n)
                  s = Add(scores, o)"""
PRODUCT = "f = Cast<to = 1>(keep) g = Sub(one, f) m = Mul(g, fill) s = Add(scores, m)"
DIFFERENCE = """f = Cast<to = 1>(keep) g = Sub(one, f) c = Neg(fill) m = Mul(g, c)
                s = Sub(scores, m)"""
INSTEAD = "s = Where(keep, scores, fill)"

KEEP = np.tril(np.ones((8, 8), np.bool_))
KEEP[:, :4] = False  # four tokens of padding on the left: their rows are masked as a whole


def _model(mask: str, fill: float, constants: str = "") -> onnx.ModelProto:
    text = f"""<ir_version: 10, opset_import: ["" : 22]>
    g (float[1,8,64] x, bool[8,8] keep, bool[8,8] causal) => (float[1,8,64] y)
    <float zero = {{0}}, float one = {{1}}, float fill = {{{fill}}}, float scale = {{0.125}}
    {constants}> {{
        q = MatMul(x, wq)
        k = MatMul(x, wk)
        v = MatMul(x, wv)
        t = Transpose<perm = [0, 2, 1]>(k)
        a = MatMul(q, t)
        scores = Mul(a, scale)
        {mask}
        p = Softmax(s)
        y = MatMul(p, v)
    }}"""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(
            (rng.standard_normal((64, 64)) / 8).astype(np.float32), f"w{name}"
        )
        for name in "qkv"
    )
    return onnx.shape_inference.infer_shapes(model)


def _feeds() -> dict[str, Array]:
    rng = np.random.default_rng(1)
    x = 2 * rng.standard_normal((1, 8, 64)).astype(np.float32)
    return {"x": x, "keep": KEEP, "causal": np.tril(np.ones((8, 8), np.bool_))}


def _low(result: amp.RewriteResult, op: str) -> bool:
    (node,) = [node for node in result.report.nodes if node.op == op]
    return node.variables["T"].dtype != "float32"


@pytest.mark.share(11)
@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("mask", [ONE_MASK, TWO_MASKS, SUM_OF_MASKS, PRODUCT, DIFFERENCE, INSTEAD])
@pytest.mark.parametrize("way", WAYS)
def test_rows_masked_as_a_whole_come_out_as_in_float32(way: str, mask: str, fill: float) -> None:
    model, feeds = _model(mask, fill), _feeds()
    scores = amp.evaluate(model, feeds, outputs=["scores"])["scores"]
    assert np.abs(scores).max() > 8
    result = amp.rewrite(model, **WAYS[way])
    assert result.report.summary.compute_converted == 1.0
    assert error(model, result, feeds) < 2


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_fill_in_place_of_scores_stays_low(precision: Precision) -> None:
    result = amp.rewrite(_model(INSTEAD, -3.4e38), precision=precision)
    assert _low(result, "Softmax")
    assert _low(result, "Where")


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_causal_mask_in_the_file_stays_low(precision: Precision) -> None:
    rows = [0.0 if column <= row else -1e9 for row in range(8) for column in range(8)]
    constants = f", float[8,8] m = {{{','.join(map(str, rows))}}}"
    result = amp.rewrite(_model("s = Add(scores, m)", -1.0, constants), precision=precision)
    assert _low(result, "Softmax")
    assert _low(result, "Add")


def test_a_mask_in_the_file_with_a_row_masked_as_a_whole_keeps_the_sum_float32() -> None:
    rows = [0.0 if column < row else -1e9 for row in range(8) for column in range(8)]
    constants = f", float[8,8] m = {{{','.join(map(str, rows))}}}"
    result = amp.rewrite(_model("s = Add(scores, m)", -1.0, constants))
    assert not _low(result, "Softmax")
    assert "masks with numbers of size 1e+09" in amp.explain(result, "Add_6")


def test_a_bias_that_is_no_mask_stays_low() -> None:
    assert _low(amp.rewrite(_model(ONE_MASK, -100.0)), "Softmax")


def test_a_fill_that_swallows_every_score_stays_low_in_bfloat16() -> None:
    assert _low(amp.rewrite(_model(ONE_MASK, -3.4e38), precision="bfloat16"), "Softmax")
    assert not _low(amp.rewrite(_model(ONE_MASK, -1e9), precision="bfloat16"), "Softmax")


LOWEST = float(np.finfo(np.float32).min)
"""The lowest number of float32: minus infinity in float16, and in bfloat16 as well."""

SPELLINGS = {
    "Min": "f = Mul(pad, low) m = Min(f, causal) s = Add(scores, m)",
    "Max": "f = Mul(pad, low) m = Max(f, causal) n = Add(f, causal) s = Add(scores, n)",
    "Neg": "f = Mul(pad, most) m = Neg(f) s = Add(scores, m)",
    "difference times the largest": """e = Sub(one, pad) d = Sub(e, one) m = Mul(d, most)
                                       s = Add(scores, m)""",
    "Clip": "f = Mul(pad, low) m = Clip(f, low, zero) s = Add(scores, m)",
    "ReduceMin": """f = Mul(pad, low) u = Unsqueeze(f, first) m = ReduceMin<keepdims = 0>(u, first)
                    s = Add(scores, m)""",
    "MaxPool": "f = Mul(pad, low) m = MaxPool<kernel_shape = [1]>(f) s = Add(scores, m)",
    "TopK": "f = Mul(pad, low) m, i = TopK<axis = 1>(f, once) s = Add(scores, m)",
    "Concat and sum": """f = Mul(pad, low) e = Expand(f, square) c = Concat<axis = 0>(e, causal)
                         m = ReduceSum<keepdims = 1>(c, first) s = Add(scores, m)""",
    "ScatterElements": """z = Mul(pad, zero) c = ScatterElements<axis = 2>(z, places, lows)
                          m = Mul(c, pad) s = Add(scores, m)""",
    "CumSum": """c = CumSum(pad, last) g = Greater(c, zero) m = Where(g, low, zero)
                 s = Add(scores, m)""",
    "Trilu": "t = Trilu<upper = 1>(full, above) f = Mul(pad, low) m = Min(t, f) s = Add(scores, m)",
    "Sub": "m = Mul(pad, most) s = Sub(scores, m)",
    "Log": "e = Sub(one, pad) l = Log(e) m = Clip(l, low) s = Add(scores, m)",
    "Div": "f = Div(pad, tiny) m = Neg(f) s = Add(scores, m)",
    "two factors": """f = Cast<to = 9>(pad) a = Where(f, most, zero) n = Neg(one) m = Mul(a, n)
                      s = Add(scores, m)""",
    "Where of Where": """b = Cast<to = 9>(pad) a = Where(b, low, zero) m = Where(late, low, a)
                         s = Add(scores, m)""",
    "input": "s = Add(scores, given)",
    "input behind moves": "u = Unsqueeze(given, first) m = Squeeze(u, first) s = Add(scores, m)",
    "input and constant": "m = Min(given, causal) s = Add(scores, m)",
}
TRIANGLE = np.triu(np.ones((1, 8, 8), np.float32), 1)
CONSTANTS: dict[str, Any] = {
    "zero": np.float32(0),
    "half": np.float32(0.5),
    "one": np.float32(1),
    "low": np.float32(LOWEST),
    "most": np.float32(-LOWEST),
    "tiny": np.float32(1 / 3.4e38),
    "causal": TRIANGLE * np.float32(LOWEST),
    "late": TRIANGLE > 0,
    "full": np.full((1, 8, 8), LOWEST, np.float32),
    "lows": np.full((1, 1, 8), LOWEST, np.float32),
    "places": np.arange(8).reshape(1, 1, 8),
    "first": np.array([0]),
    "once": np.array([1]),
    "above": np.int64(1),
    "last": np.int64(1),
    "square": np.array([1, 8, 8]),
}


def _spelled(mask: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 22]>
    g (float[1,8,64] x, float[1,1,8] pad, float[1,1,8] pads,
    float[1,1,8] given) => (float[1,8,64] y) {{
        q = MatMul(x, wq)
        k = MatMul(x, wk)
        v = MatMul(x, wv)
        t0 = Transpose<perm = [0, 2, 1]>(k)
        scores = MatMul(q, t0)
        {mask}
        p = Softmax(s)
        y = MatMul(p, v)
    }}""")
    rng, read = np.random.default_rng(0), {i for node in model.graph.node for i in node.input}
    weights = {f"w{n}": (rng.standard_normal((64, 64)) / 8).astype(np.float32) for n in "qkv"}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(array), name)
        for name, array in {**weights, **CONSTANTS}.items()
        if name in read
    )
    for name in {"pad", "pads", "given"} - read:
        model.graph.input.remove(next(v for v in model.graph.input if v.name == name))
    return onnx.shape_inference.infer_shapes(model)


def _padded(model: onnx.ModelProto) -> dict[str, Array]:
    """Return feeds that mask the first five tokens: causal rows of those have nothing else."""
    pad = np.zeros((1, 1, 8), np.float32)
    pad[..., :5] = 1
    x = np.random.default_rng(1).standard_normal((1, 8, 64)).astype(np.float32)
    given = np.where(pad > 0, np.float32(LOWEST), np.float32(0))
    feeds = {"x": x, "pad": pad, "pads": np.roll(given, 2), "given": given}
    return {v.name: feeds[v.name] for v in model.graph.input}


@pytest.mark.share(7)
@pytest.mark.parametrize("mask", SPELLINGS.values(), ids=SPELLINGS)
@pytest.mark.parametrize("way", WAYS)
def test_the_lowest_number_masks_in_every_spelling(way: str, mask: str) -> None:
    model = _spelled(mask)
    feeds = _padded(model)
    result = amp.rewrite(model, **WAYS[way])
    assert result.report.summary.compute_converted == 1.0
    assert _low(result, "Softmax") == (way == "bfloat16")
    assert error(model, result, feeds) < 4
    assert not amp.rewrite(result.model, **WAYS[way]).changed


def test_masks_of_the_caller_that_are_added_in_turn_stay_low() -> None:
    model = _spelled("r = Add(scores, given) s = Add(r, causal)")
    feeds = _padded(model)
    result = amp.rewrite(model, precision="bfloat16")
    assert _low(result, "Softmax")
    assert error(model, result, feeds) < 4


@pytest.mark.share(2)
@pytest.mark.parametrize("mask", ["input", "Min", "Neg", "Clip", "Where of Where"])
@pytest.mark.parametrize("way", WAYS)
def test_a_softmax_that_is_written_out_masks_as_well(way: str, mask: str) -> None:
    model = _spelled(SPELLINGS[mask])
    (softmax,) = [node for node in model.graph.node if node.op_type == "Softmax"]
    place = list(model.graph.node).index(softmax)
    written = onnx.parser.parse_graph("""g (float[1,8,8] s, int64[1] rows) => (float[1,8,8] p) {
        peak = ReduceMax(s, rows) d = Sub(s, peak) e = Exp(d) t = ReduceSum(e, rows) p = Div(e, t)
    }""")
    model.graph.node.remove(softmax)
    for node in reversed(written.node):
        model.graph.node.insert(place, node)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2]), "rows"))
    feeds = _padded(model)
    result = amp.rewrite(model, **WAYS[way])
    assert result.report.summary.compute_converted == 1.0
    assert error(model, result, feeds) < 4


def test_an_input_that_is_known_to_be_no_mask_stays_low() -> None:
    model = _spelled(SPELLINGS["input"])
    assert not _low(amp.rewrite(model), "Softmax")
    assert _low(amp.rewrite(model, input_ranges={"given": (-20, 20)}), "Softmax")


def test_scores_that_are_inputs_themselves_are_no_masks() -> None:
    model = _spelled("m = Add(given, pad) r = MatMul(m, m0) s = Add(scores, r)")
    model.graph.initializer.append(
        onnx.numpy_helper.from_array(np.eye(8, dtype=np.float32) / 8, "m0")
    )
    assert _low(amp.rewrite(model), "Softmax")


def test_a_value_that_something_else_reads_is_not_cut() -> None:
    model = _spelled("f = Mul(pad, most) m = Neg(f) r = Add(scores, m) s = Exp(r)")
    result = amp.rewrite(model, precision="bfloat16")
    assert "Clip" not in {node.op_type for node in result.model.graph}


ATTENTIONS = {
    "Attention": ('"" : 24', "o = Attention<q_num_heads = 2, kv_num_heads = 2>(q, k, v, m)"),
    "MultiHeadAttention": (
        '"" : 20, "com.microsoft" : 1',
        "o = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v, , , m)",
    ),
}
BIASES = {
    "Where": "m = Where(keep, zero, low)",
    "product": "f = Cast<to = 1>(keep) g = Sub(one, f) m = Mul(g, low)",
    "positive": "f = Cast<to = 1>(keep) g = Sub(f, one) m = Mul(g, most)",
    "Concat": """f = Cast<to = 1>(keep) g = Sub(one, f) h = Mul(g, low)
                 a, b = Split<axis = 3, num_outputs = 2>(h) m = Concat<axis = 3>(a, b)""",
    "input": "m = Identity(given)",
}


@pytest.mark.share(3)
@pytest.mark.parametrize("bias", BIASES.values(), ids=BIASES)
@pytest.mark.parametrize("attention", ATTENTIONS.values(), ids=ATTENTIONS)
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_an_attention_with_a_mask_of_the_lowest_number_is_low(
    precision: Precision, attention: tuple[str, str], bias: str
) -> None:
    imports, call = attention
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: [{imports}]>
    g (float[1,8,64] x, bool[1,1,8,8] keep, float[1,1,8,8] given) => (float[1,8,64] y) {{
        q = MatMul(x, w) k = MatMul(x, w) v = MatMul(x, w) {bias} {call} y = MatMul(o, w)
    }}""")
    rng, read = np.random.default_rng(0), {i for node in model.graph.node for i in node.input}
    weight = (rng.standard_normal((64, 64)) / 8).astype(np.float32)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(array), name)
        for name, array in {"w": weight, **CONSTANTS}.items()
        if name in read
    )
    result = amp.rewrite(model, precision=precision)
    op = call.partition("<")[0].removeprefix("o = ").rpartition(".")[2]
    (node,) = [n for n in result.report.nodes if n.op == op]
    assert {v.dtype for v in node.variables.values()} == {precision}
    given = np.where(KEEP, np.float32(0), np.float32(LOWEST))[None, None]
    feeds = {"x": 2 * rng.standard_normal((1, 8, 64)).astype(np.float32), "given": given}
    feeds["keep"] = KEEP[None, None]
    expected, found = amp.evaluate(model, feeds)["y"], amp.evaluate(result.model, feeds)["y"]
    assert np.isfinite(found).all()
    dtype = BFLOAT16 if precision == "bfloat16" else FLOAT16
    seen = KEEP.any(axis=1)  # what ONNX Runtime makes of the other rows depends on the kernel
    atol = 4 * dtype.rtol * np.abs(expected[:, seen]).max()
    np.testing.assert_allclose(found[:, seen], expected[:, seen], atol=atol, rtol=0)
