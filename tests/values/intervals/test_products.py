"""Sums of products: by the rows of constant weights, or by the number of their terms."""

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


def test_weights_without_elements_give_sums_of_nothing() -> None:
    body = "y = MatMul(x, w)"
    weights = {"w": np.zeros((0, 3), np.float32)}
    assert bounds_of(body, "float[2,0] x", {"x": 1}, arrays=weights) == (0, 0, 0, 0)


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
