"""Constants that compute as float32 and are stored in 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck
from onnx import numpy_helper
from rewrite_text import assert_close, assert_rewrites, initializer, parse, rewritten

import amp_rewrite as amp
from amp_rewrite.errors import OptionError
from amp_rewrite.rewriting.plan import stored_constants
from amp_rewrite.rewriting.report.records import StoredRecord

WIDE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
W = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"
TABLE = "float[3,4] t = {1,2,3,4,5,6,7,8,9,10,11,12}"
NORM = "float[4] one = {1,1,1,1}"
SECOND = "float[3,4] s = {1,2,3,4,5,6,7,8,9,10,11,12}"
BERT = (
    f"g (int64[2] i, int64[2] j) => (float[2,4] y) <{TABLE}, {SECOND}, {W}, {NORM}>"
    " { [e] e = Gather(t, i) [p] p = Gather(s, j) [a] a = Add(e, p)"
    " [n] n = LayerNormalization(a, one) [y] y = MatMul(n, w) }"
)
DENIED: dict[str, Any] = {"deny_nodes": ["a", "n"]}


@pytest.fixture(autouse=True)
def _small_constants_too(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr(stored_constants, "LEAST_ELEMENTS", 1)


def low(constant: str) -> str:
    """Return a float32 constant of a text as a float16 one, which is written as its bits."""
    head, _, numbers = constant.partition("{")
    bits = np.array(numbers.rstrip("}").split(","), np.float16).view(np.uint16)
    return f"{head.replace('float', 'float16')}{{{','.join(map(str, bits))}}}"


def stored(source: str | onnx.ModelProto, **options: Any) -> dict[str, str]:
    """Return constant -> the type that it is stored in."""
    return {r.name: r.dtype for r in rewritten(source, **options).report.weights.stored}


def test_tables_of_embeddings_are_stored_low_and_read_through_a_cast() -> None:
    result = assert_rewrites(
        BERT,
        f"g (int64[2] i, int64[2] j) => (float[2,4] y)"
        f" <{low(TABLE)}, {low(SECOND)}, {low(W)}, {NORM}> {{"
        " t_fp32 = Cast<to = 1>(t) s_fp32 = Cast<to = 1>(s)"
        " [e] e = Gather(t_fp32, i) [p] p = Gather(s_fp32, j) [a] a = Add(e, p)"
        " [n] n = LayerNormalization(a, one) n_fp16 = Cast<to = 10>(n)"
        " [y] y_fp16 = MatMul(n_fp16, w) y = Cast<to = 1>(y_fp16) }",
        **DENIED,
    )
    assert result.report.weights.stored == (
        StoredRecord("t", "float16", 24, 0.0, 0),
        StoredRecord("s", "float16", 24, 0.0, 0),
    )
    assert (result.report.weights.converted, result.report.weights.kept) == (1, 1)
    assert_close(result, BERT, {name: np.array([0, 2]) for name in "ij"})


def test_bfloat16_models_store_in_float16_what_fits_it() -> None:
    assert stored(BERT, precision="bfloat16", **DENIED) == {"t": "float16", "s": "float16"}
    large = BERT.replace("{1,2,3,4,5", "{1,2,3e9,4,5", 1)
    assert stored(large, precision="bfloat16", **DENIED) == {"t": "bfloat16", "s": "float16"}
    assert stored(large, **DENIED) == {"s": "float16"}


def test_what_converts_rows_at_each_look_up_stores_tables_in_float32_by_default() -> None:
    options: dict[str, Any] = {"precision": "bfloat16", "target": "openvino", **DENIED}
    both = {"t": "float16", "s": "float16"}
    assert stored(BERT, **options) == {}
    assert stored(BERT, **options, store="tables") == both


def test_nothing_is_stored_where_that_is_asked_for() -> None:
    for options in ({"store": "float32"}, {"weights": "cast"}):
        assert stored(BERT, **options, **DENIED) == {}


@pytest.mark.parametrize(
    "change",
    [
        ("y = MatMul(n, w)", "y = Exp(n)"),
        ("[y] y = MatMul(n, w)", "h = Cos(n) [y] y = MatMul(h, w)"),
        ("[y] y = MatMul(n, w)", "[step] h = Floor(n) [y] y = MatMul(h, w)"),
        ("[y] y = MatMul(n, w)", "h = custom.Own(n) [y] y = MatMul(h, w)"),
        ("=> (float[2,4] y)", "=> (float[2,4] y, float[2,4] n)"),
    ],
    ids=["nothing is low", "an angle", "a step", "something opaque", "an output"],
)
def test_tables_stay_whose_rows_do_not_end_low(change: tuple[str, str]) -> None:
    model = BERT.replace(*change)
    denied = [*DENIED["deny_nodes"], *(["step"] if "[step]" in model else [])]
    assert stored(model, deny_nodes=denied) == {}


def test_tables_that_something_else_reads_as_float32_stay() -> None:
    model = BERT.replace("=> (float[2,4] y)", "=> (float[2,4] y, float[3,4] z)")
    assert stored(model.replace("[e]", "z = Exp(t) [e]"), **DENIED) == {"s": "float16"}


def test_a_table_that_is_a_weight_as_well_is_stored_once() -> None:
    tied = BERT.replace("[y] y = MatMul(n, w)", "u = Transpose(t) [y] y = MatMul(n, u)").replace(
        "(float[2,4] y)", "(float[2,3] y)"
    )
    tied = tied.replace(f"{W}, ", "")
    result = rewritten(tied, precision="bfloat16", **DENIED)
    names = {t.name: t.data_type for t in amp.to_proto(result.model).graph.initializer}
    assert names == {"t": 16, "s": 10, "one": 1}
    assert (result.report.weights.converted, len(result.report.weights.stored)) == (1, 2)


def test_half_stores_whatever_survives() -> None:
    text = f"""g (float[2,4] x) => (float[2,4] y, float[2,4] z) <{W},
      float[4] fits = {{1,2,3,4}}, float[4] large = {{1,2,3,98000000}},
      float[4] small = {{1e-9,1,1,1}}> {{
      y = MatMul(x, w) a = Mul(x, fits) b = Mul(a, large) c = Mul(b, small) z = Cos(c) }}"""
    result = rewritten(text, store="half")
    assert [r.name for r in result.report.weights.stored] == ["fits"]
    assert initializer(result, "large").dtype == np.float32


def test_what_the_caller_or_something_opaque_sees_stays() -> None:
    text = f"""g (float[2,4] x, float[4] default) => (float[2,4] y, float[4] out)
      <{W}, float[4] default = {{1,2,3,4}}, float[4] out = {{1,2,3,4}},
       float[4] opaque = {{1,2,3,4}}, float[4] kept = {{1,2,3,4}}, float[4] twice = {{1,2,3,4}}> {{
      a = MatMul(x, w) b = Mul(a, default) c = Mul(b, out) d = custom.Own(c, opaque)
      [stay] e = Mul(d, kept) u = Cast<to = 11>(twice)
      t = Cast<to = 1>(u) f = Mul(e, t) y = Cos(f) }}"""
    assert stored(text, store="half", preserve=["stay"]) == {}


def test_constants_of_subgraphs_and_nodes_are_stored_where_they_are() -> None:
    text = """g (float[4] x, bool b) => (float[4] y) <float[4] outer = {1,2,3,4}> {
      y = If(b) <then_branch = t () => (float[4] p) <float[4] inner = {1,2,3,4}> {
                   q = Mul(x, inner) r = Mul(q, outer) p = Cos(r) },
                 else_branch = e () => (float[4] p) {
                   k = Constant<value = float[4] {1,2,3,4}>() q = Mul(x, k) p = Cos(q) }> }"""
    assert set(stored(text, store="half")) == {"outer", "inner", "k"}
    result = rewritten(text, store="half")
    constant = next(n for n in result.report.nodes if n.op == "Constant")
    assert constant.variables["T"].reason == "stored-constant"
    for branch in (True, False):
        feeds = {"x": np.ones(4, np.float32), "b": np.array(branch)}
        assert_close(result, text, feeds)


def test_what_reads_a_stored_constant_computes_what_it_did() -> None:
    values = np.random.default_rng(0).normal(0, 1, (64, 64)).astype(np.float32)
    model = parse("g (float[2,64] x) => (float[2,64] y) { y = MatMul(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(values, "w"))
    result = rewritten(model, store="half", deny_nodes=["*"])
    x = np.eye(2, 64, dtype=np.float32)
    expected = values[:2].astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(amp.evaluate(result.model, {"x": x})["y"], expected)
    [record] = result.report.weights.stored
    assert record.bytes_saved == 2 * values.size
    assert 0 < record.largest_relative <= 2.0**-11


def test_models_whose_cast_does_not_take_the_type_stay() -> None:
    text = BERT.replace("LayerNormalization(a, one)", "Mul(a, one)")
    old = f'<ir_version: 8, opset_import: ["" : 6]> {text}'
    assert stored(old, store="half", **DENIED) == {}


def test_small_constants_are_not_worth_a_cast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_constants, "LEAST_ELEMENTS", 13)
    assert stored(BERT, store="half", **DENIED) == {}


def test_weights_that_are_kept_float32_cannot_be_stored_low() -> None:
    with pytest.raises(OptionError, match="cannot be stored in 16 bits; found store='half'"):
        amp.RewriteOptions(store="half", weights="cast")
    with pytest.raises(OptionError, match="unknown store"):
        amp.RewriteOptions(store="quarter")  # pyright: ignore[reportArgumentType]
