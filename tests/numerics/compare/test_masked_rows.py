"""Rows that no score reaches, where attention is one operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from amp_rewrite.numerics.compare.masked_rows import rows_of
from amp_rewrite.numerics.compare.verify import verify

FILL = float(np.finfo(np.float32).min)
N, L, H, D = 2, 6, 2, 8
LEFT = 2
"""How many rows of the first sequence are padding on its left; the second has none."""


def kept() -> np.ndarray[Any, Any]:
    """Return which keys each row sees, (N, L, L): causal, without padding."""
    keep = np.tril(np.ones((N, L, L), np.bool_))
    keep[0, :, :LEFT] = False
    return keep


def bias(fill: float = FILL) -> np.ndarray[Any, Any]:
    return np.where(kept()[:, None], 0.0, fill).astype(np.float32)


def padding() -> np.ndarray[Any, Any]:
    keep = np.ones((N, L), np.int32)
    keep[0, :LEFT] = 0
    return keep


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "ai.onnx, bool": (
        f"y = Attention<q_num_heads={H}, kv_num_heads={H}>(a, k, v, m)",
        {"m": kept()[:, None]},
    ),
    "ai.onnx, causal": (
        f"y = Attention<q_num_heads={H}, kv_num_heads={H}, is_causal=1>(a, k, v, m)",
        {"m": np.broadcast_to(padding()[:, None, None] > 0, (N, 1, L, L)).copy()},
    ),
    "ai.onnx, added": (
        f"y = Attention<q_num_heads={H}, kv_num_heads={H}>(a, k, v, m)",
        {"m": bias()},
    ),
    "MultiHeadAttention, added": (
        f"y = com.microsoft.MultiHeadAttention<num_heads={H}>(a, k, v, , , m)",
        {"m": bias()},
    ),
    "MultiHeadAttention, padding": (
        f"y = com.microsoft.MultiHeadAttention<num_heads={H}, unidirectional=1>(a, k, v, , m)",
        {"m": padding()},
    ),
    "Attention of ONNX Runtime": (
        f"y = com.microsoft.Attention<num_heads={H}, unidirectional=1>(x, packed, b, m)",
        {"m": padding()},
    ),
    "GroupQueryAttention, added": (
        f"y, pk, pv = com.microsoft.GroupQueryAttention<num_heads={H}, kv_num_heads={H}>"
        "(a, k, v, , , ends, total, , , , m)",
        {"m": bias()},
    ),
}


def model(kind: str, wrong: tuple[int, int] | None = None) -> onnx.ModelProto:
    """Return attention, with noise in one row of one sequence if that is to be `wrong`."""
    call, feeds = KINDS[kind]
    mask = feeds["m"]
    type_ = {"b": "bool", "f": "float", "i": "int32"}[mask.dtype.kind]
    shape = ",".join(map(str, mask.shape))
    made = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>
        g (float[{N},{L},{H * D}] x, {type_}[{shape}] m) => (float[{N},{L},{H * D}] out)
          <int32[{N}] ends = {{{L - 1},{L - 1}}}, int32[1] total = {{{L}}}> {{
          a = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv) {call} out = Add(y, noise) }}"""
    )
    rng = np.random.default_rng(0)
    noise = np.zeros((N, L, H * D), np.float32)
    if wrong is not None:
        noise[wrong] = 10
    weights = {name: rng.standard_normal((H * D, H * D)) / 4 for name in ("wq", "wk", "wv")}
    weights["packed"] = rng.standard_normal((H * D, 3 * H * D)) / 4
    for name, weight in {**weights, "noise": noise, "b": np.zeros(3 * H * D)}.items():
        made.graph.initializer.append(numpy_helper.from_array(weight.astype(np.float32), name))
    return made


def fed(kind: str) -> dict[str, Any]:
    x = np.random.default_rng(1).standard_normal((N, L, H * D)).astype(np.float32)
    return {"x": x, **KINDS[kind][1]}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_no_score_reaches_are_apart(kind: str) -> None:
    report = verify(model(kind), model(kind, wrong=(0, 1)), fed(kind))
    assert (report.ok, report.outputs[0].apart) == (True, LEFT * H * D)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", [(0, LEFT), (1, 0)])
def test_rows_that_see_something_are_not(kind: str, place: tuple[int, int]) -> None:
    assert not verify(model(kind), model(kind, wrong=place), fed(kind)).ok


def test_what_lies_behind_the_end_of_a_sequence_is_apart() -> None:
    kind = "GroupQueryAttention, added"
    ends = numpy_helper.from_array(np.array([L - 3, L - 1], np.int32), "ends")
    models = [model(kind), model(kind, wrong=(0, L - 1)), model(kind, wrong=(1, L - 1))]
    for each in models:
        names = [i.name for i in each.graph.initializer]
        each.graph.initializer[names.index("ends")].CopyFrom(ends)
    causal = {**fed(kind), "m": np.zeros((N, 1, L, L), np.float32)}
    assert verify(models[0], models[1], causal).ok
    assert not verify(models[0], models[2], causal).ok


def test_rows_of_caches_are_those_of_every_head() -> None:
    rows = np.array([[True, False, False], [False, False, False]])
    found = rows_of(np.zeros((2, 4, 3, 8)), (rows,))
    assert found is not None
    assert found.shape == (2, 4, 3)
    assert found.sum() == 4
