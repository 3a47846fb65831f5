"""Sums, means and extremes along axes and in windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from interval_models import NOTHING, bounds_of, model_of

from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.graph.streams import Stream
from amp_rewrite.values.intervals.interval import between
from amp_rewrite.values.intervals.propagate import intervals_of
from amp_rewrite.values.weight_stats import MeasuredConstants

INF = math.inf


@pytest.mark.parametrize(
    ("node", "opset", "count"),
    [
        ("ReduceSum(x)", 21, 30),
        ("ReduceSum(x, none)", 21, 30),
        ("ReduceSum(x, first)", 21, 2),
        ("ReduceSum(x, last)", 21, 5),
        ("ReduceSum(x, beyond)", 21, None),
        ("ReduceSum(x, before)", 21, None),
        ("ReduceSum(x, a)", 21, None),
        ("ReduceSum<noop_with_empty_axes = 1>(x)", 21, 1),
        ("ReduceSum<noop_with_empty_axes = 1>(x, none)", 21, 1),
        ("ReduceSum(x)", 11, 30),
        ("ReduceSum<axes = [1]>(x)", 11, 3),
        ("ReduceSum<axes = [-1, 0]>(x)", 11, 10),
    ],
)
def test_a_sum_has_as_many_terms_as_its_axes_are_long(
    node: str, opset: int, count: int | None
) -> None:
    constants = """int64[0] none = {}, int64[1] first = {0}, int64[1] last = {-1},
        int64[2] both = {0, 2}, int64[1] front = {-3}, int64[1] beyond = {3},
        int64[1] before = {-4}"""
    found = bounds_of(
        f"y = {node}",
        "float[2,3,5] x, int64[1] a",
        {"x": (1, 2)},
        opset=opset,
        constants=constants,
    )
    expected = (0, INF) if count is None else (count, 2 * count)
    assert found[:2] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("operator", "x", "expected"),
    [
        ("ReduceL2", (-3, 2), (0, math.sqrt(27))),
        ("ReduceL2", (1, 2), (math.sqrt(3), math.sqrt(12))),
        ("ReduceSumSquare", (-3, 2), (0, 27)),
        ("ReduceSumSquare", (1, 2), (3, 12)),
        ("ReduceMean", (1, 2), (1, 2)),
    ],
)
def test_reductions_of_three_elements(operator: str, x: Any, expected: Any) -> None:
    body, constants = f"y = {operator}(x, n)", "int64[1] n = {1}"
    found = bounds_of(body, "float[2,3] x", {"x": x}, constants=constants)
    assert found[:2] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("axis", "x", "expected"),
    [
        ("last", (1, 2), (0, 6)),
        ("first", (1, 2), (0, 4)),
        ("two", (1, 2), (0, INF)),
        ("beyond", (1, 2), (0, INF)),
        ("before", (1, 2), (0, INF)),
        ("a", (1, 2), (0, INF)),
        ("a", (-2, -1), (-INF, 0)),
        ("a", (-2, 1), (-INF, INF)),
    ],
)
def test_sums_of_up_to_all_elements_along_an_axis(axis: str, x: Any, expected: Any) -> None:
    constants = """int64 last = {1}, int64 first = {0}, int64 back = {-1}, int64 front = {-2},
        int64[1] single = {1}, int64[2] two = {1, 1}, int64 beyond = {2}, int64 before = {-3}"""
    inputs = "float[2,3] x, int64 a"
    found = bounds_of(f"y = CumSum(x, {axis})", inputs, {"x": x}, constants=constants)
    assert found == pytest.approx((*expected, 0, 0), rel=1e-4)


WEIGHTS = "float[2,2] w = {1, 2, 3, -4}, float[3,2] t = {1, 2, 3, 4, 5, 6}, float[2] b = {1, 2}"
"""The columns of w: 1 and 3, 2 and -4; its rows: 1 and 2, 3 and -4."""


@pytest.mark.parametrize(
    ("node", "inputs", "given", "expected"),
    [
        # rows of constants
        ("MatMul(x, w)", "float[3,2] x", {"x": (1, 2)}, (-6, 8)),
        ("MatMul(w, x)", "float[2,3] x", {"x": (1, 2)}, (-5, 6)),
        ("MatMul(x, t)", "float[N,3] x", {"x": (1, 2)}, (9, 24)),
        ("MatMul(t, x)", "float[2,N] x", {"x": (1, 2)}, (3, 22)),
        # terms of what is computed
        ("MatMul(x, z)", "float[2,3] x, float[3,5] z", {"x": (1, 2), "z": (-1, 4)}, (-6, 24)),
        ("MatMul(x, z)", "float[2,N] x, float[3,5] z", {"x": (1, 2), "z": (-1, 4)}, (-6, 24)),
        ("MatMul(x, z)", "float[2,3] x, float[N,5] z", {"x": (1, 2), "z": (-1, 4)}, (-6, 24)),
        ("MatMul(x, z)", "float[N] x, float[3] z", {"x": (1, 2), "z": (1, 4)}, (3, 24)),
        ("MatMul(x, z)", "float[2,N] x, float[N,5] z", {"x": (1, 2), "z": (0, 4)}, (0, INF)),
        ("MatMul(x, z)", "float[2,N] x, float[N,5] z", {"x": (1, 2), "z": (-0.25, 4)}, None),
        ("MatMul(x, z)", "float[2,N] x, float[N,5] z", {"x": (1, 2), "z": (0.25, 4)}, (0, INF)),
        ("MatMul(x, z)", "float[2,3] x, float[3,5] z", {"z": (1, 4)}, None),
        # alpha x A' x B' + beta x C
        ("Gemm(x, w)", "float[3,2] x", {"x": (1, 2)}, (-6, 8)),
        ("Gemm<transB = 1>(x, w)", "float[3,2] x", {"x": (1, 2)}, (-5, 6)),
        ("Gemm<alpha = 0.5>(x, w)", "float[3,2] x", {"x": (1, 2)}, (-3, 4)),
        ("Gemm(x, w, b)", "float[3,2] x", {"x": (1, 2)}, (-5, 10)),
        ("Gemm<beta = -3.0>(x, w, b)", "float[3,2] x", {"x": (1, 2)}, (-12, 5)),
        ("Gemm(x, z)", "float[2,3] x, float[3,5] z", {"x": (1, 2), "z": (-1, 4)}, (-6, 24)),
        ("Gemm(x, z)", "float[M,N] x, float[3,5] z", {"x": (1, 2), "z": (-1, 4)}, (-6, 24)),
        (
            "Gemm<transB = 1>(x, z)",
            "float[2,3] x, float[5,3] z",
            {"x": (1, 2), "z": (-1, 4)},
            (-6, 24),
        ),
        ("Gemm(x, z)", "float[2,3] x, float[3,5] z", {"z": (1, 4)}, None),
        ("Gemm(x, z)", "float[2,3] x, float z", {"x": (1, 2), "z": (1, 4)}, (3, 24)),
        # of each operand of an Einsum one element
        (
            'Einsum<equation = "ij,jk->ik">(x, z)',
            "float[2,3] x, float[3,5] z",
            {"x": (1, 2), "z": (-1, 4)},
            (-6, 24),
        ),
        (
            'Einsum<equation = "ij,ij,i->j">(x, x, z)',
            "float[2,3] x, float[2] z",
            {"x": (1, 2), "z": (1, 4)},
            (2, 32),
        ),
        (
            'Einsum<equation = "ij,jk->ik">(x, z)',
            "float[2,N] x, float[N,5] z",
            {"x": (1, 2), "z": (1, 4)},
            (0, INF),
        ),
        ('Einsum<equation = "ij->i">(x)', "float[2,3] x", {"x": (1, 2)}, (3, 6)),
    ],
)
def test_products_of_matrices(
    node: str, inputs: str, given: dict[str, Any], expected: tuple[float, float] | None
) -> None:
    found = bounds_of(f"y = {node}", inputs, given, constants=WEIGHTS)
    if expected is None:
        assert tuple(found) == NOTHING
    else:
        assert found[:2] == pytest.approx(expected, rel=1e-4)


WINDOWS = """float[2,1,2] c = {1, 2, 3, -4}, float[2,2,1] d = {1, 2, 3, 4}, float[2] b = {1, 2},
    float[4,1,1] g = {1, 2, 3, 4}"""


@pytest.mark.parametrize(
    ("node", "inputs", "given", "expected"),
    [
        ("Conv(x, c)", "float[1,1,5] x", {"x": (1, 2)}, (-8, 6)),
        ("Conv(x, c)", "float[1,1,5] x", {"x": (-2, -1)}, (-6, 8)),
        ("Conv(x, c, b)", "float[1,1,5] x", {"x": (1, 2)}, (-7, 8)),
        ("Conv(x, d)", "float[1,2,5] x", {}, None),
        ("Conv(x, z)", "float[1,2,5] x, float[4,2,3] z", {"x": (1, 2), "z": (-1, 4)}, (-12, 48)),
        (
            "Conv(x, z, b)",
            "float[1,2,5] x, float[2,2,3] z",
            {"x": (1, 2), "z": (-1, 4)},
            (-11, 50),
        ),
        ("Conv(x, z)", "float[1,2,5] x, float[4,N,3] z", {"x": (1, 2), "z": (1, 4)}, (0, INF)),
        ("Conv(x, z)", "float[1,2,5] x, float[4,N,3] z", {"x": (1, 2), "z": (-1, 4)}, None),
        ("Conv(x, a)", "float[1,2,5] x", {"x": (1, 2)}, (0, INF)),
        ("ConvTranspose(x, d)", "float[1,2,5] x", {"x": (1, 2)}, (0, 12)),
        ("ConvTranspose<group = 2>(x, g)", "float[1,4,5] x", {"x": (1, 2)}, (0, 14)),
        ("ConvTranspose<group = 4>(x, g)", "float[1,4,5] x", {"x": (1, 2)}, (0, 8)),
        ("ConvTranspose(x, d, b)", "float[1,2,5] x", {"x": (1, 2)}, (1, 14)),
        (
            "ConvTranspose(x, z)",
            "float[1,2,5] x, float[2,7,3] z",
            {"x": (1, 2), "z": (-1, 4)},
            (-12, 48),
        ),
        (
            "ConvTranspose(x, z)",
            "float[1,2,5] x, float[2,N,3] z",
            {"x": (1, 2), "z": (-1, 4)},
            (-12, 48),
        ),
        (
            "ConvTranspose(x, z)",
            "float[1,2,5] x, float[2,7,N] z",
            {"x": (1, 2), "z": (0, 4)},
            (0, INF),
        ),
    ],
)
def test_a_window_may_meet_padding(
    node: str, inputs: str, given: dict[str, Any], expected: tuple[float, float] | None
) -> None:
    body = f"e = custom.F(x) a = Clip(e, l, h) y = {node}"
    constants = f"{WINDOWS}, float l = {{1}}, float h = {{2}}"
    found = bounds_of(body, inputs, given, constants=constants)
    if expected is None:
        assert tuple(found) == NOTHING
    else:
        assert found[:2] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("node", ["MatMul(x, k)", "Gemm(x, k)", "Conv(x, k)"])
@pytest.mark.parametrize("is_bounded", [True, False])
def test_long_weights_are_read_where_the_other_operand_is_bounded(
    node: str, is_bounded: bool
) -> None:
    weights = {"k": np.ones((1, (1 << 18) + 1), np.float32)}
    graph = build_type_graph(read_flat(model_of(f"y = {node}", "float[1,1] x", arrays=weights)))
    names, measured = graph.flat.value_names, MeasuredConstants()
    given = {names.index("x"): between(1, 2)} if is_bounded else {}
    found = intervals_of(graph, measured, given)[names.index("y")]
    assert found.is_bounded is is_bounded
    nothing = Stream.of_bytes(b"")
    assert (measured.stats(names.index("k"), lambda: nothing).count > 0) is is_bounded
