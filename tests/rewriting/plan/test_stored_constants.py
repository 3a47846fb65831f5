"""Tables that compute as float32 and are stored in 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from rewrite_text import assert_close, assert_rewrites, rewritten

import amp_rewrite as amp
from amp_rewrite.rewriting.plan import stored_constants
from amp_rewrite.rewriting.report.records import StoredRecord

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
        StoredRecord("t", "float16", 24),
        StoredRecord("s", "float16", 24),
    )
    assert (result.report.weights.converted, result.report.weights.kept) == (1, 1)
    assert_close(result, BERT, {name: np.array([0, 2]) for name in "ij"})


def test_bfloat16_models_store_in_float16_what_fits_it() -> None:
    assert stored(BERT, precision="bfloat16", **DENIED) == {"t": "float16", "s": "float16"}
    large = BERT.replace("{1,2,3,4,5", "{1,2,3e9,4,5", 1)
    assert stored(large, precision="bfloat16", **DENIED) == {"t": "bfloat16", "s": "float16"}
    assert stored(large, **DENIED) == {"s": "float16"}


def test_what_converts_rows_at_each_look_up_stores_tables_in_float32() -> None:
    assert stored(BERT, precision="bfloat16", target="openvino", **DENIED) == {}


def test_weights_that_are_cast_at_run_time_are_not_stored_low() -> None:
    assert stored(BERT, weights="cast", **DENIED) == {}


def test_a_table_stays_whose_elements_are_mostly_too_small_for_float16() -> None:
    small = BERT.replace("{1,2,3,4,5", "{1e-6,1e-6,3,4,5", 1)
    assert stored(small, **DENIED) == {"s": "float16"}
    assert stored(small, precision="bfloat16", **DENIED) == {"t": "bfloat16", "s": "float16"}


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


def test_what_the_caller_sees_or_a_preserved_node_reads_stays() -> None:
    given = BERT.replace("int64[2] j)", "int64[2] j, float[3,4] t)")
    assert stored(given, **DENIED) == {"s": "float16"}
    assert stored(BERT, preserve=["e"], **DENIED) == {"s": "float16"}


def test_models_whose_cast_does_not_take_the_type_stay() -> None:
    text = BERT.replace("LayerNormalization(a, one)", "Mul(a, one)")
    old = f'<ir_version: 8, opset_import: ["" : 6]> {text}'
    assert stored(old, **DENIED) == {}


def test_small_tables_are_not_worth_a_cast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_constants, "LEAST_ELEMENTS", 13)
    assert stored(BERT, **DENIED) == {}
