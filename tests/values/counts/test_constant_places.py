"""Which constants run through places, and which of those are computed with."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper

from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.values.counts.constant_places import constant_places, runs_through_places
from amp_rewrite.values.counts.count_rules import Fact, Kind

RNG = np.random.default_rng(0)
INF, NAN = np.inf, np.nan


def places_in(body: str, inputs: str = "float[8,8] x", **constants: np.ndarray) -> dict[str, Fact]:
    """Return, by name, the constants of a model that run through places."""
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 22, "custom" : 1, "com.microsoft" : 1]>'
        f" g ({inputs}) => (float[a,b] y) {{ {body} }}"
    )
    for name, array in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    graph = build_type_graph(read_flat(model))
    return {graph.flat.value_names[v]: fact for v, fact in constant_places(graph).items()}


def after(*steps: float) -> list[float]:
    """Return a line with these steps."""
    return [0.0, *np.cumsum(steps).tolist()]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ([0, 1, 2, 3], True),
        ([3, 2, 1, 0], True),
        ([0, 1, 2], False),
        ([], False),
        ([0, 1, 0, 1, 0, 1], False),
        ([5, 5, 5, 5, 5, 5], False),
        ([0, 0, 0, 1, 2, 2], False),
        (after(64, 47, 35, 26), False),
        ([0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3], False),
    ],
)
def test_a_line_runs_through_places_if_most_steps_are_like_the_next(
    line: list[float], expected: bool
) -> None:
    assert runs_through_places(np.array(line, np.float32)) is expected


@pytest.mark.parametrize("dtype", [np.bool_, np.complex64])
def test_truth_values_and_complex_numbers_are_no_places(dtype: type) -> None:
    assert not runs_through_places(np.arange(6).astype(dtype))


def test_nothing_else_is_needed_than_one_smooth_line_at_an_end_of_an_axis() -> None:
    for axis in (0, 1, 2):
        for end in (0, -1):
            noise = RNG.standard_normal((6, 7, 5))
            assert not runs_through_places(noise)
            at = tuple(slice(None) if k == axis else end for k in range(3))
            noise[at] = np.arange(noise.shape[axis])
            assert runs_through_places(noise), (axis, end)
    inner = RNG.standard_normal((6, 7))
    inner[3] = np.arange(7)
    assert not runs_through_places(inner)


def test_pairs_of_places_may_take_turns_along_the_last_axis_alone() -> None:
    pairs = RNG.standard_normal((3, 12))
    assert not runs_through_places(pairs)
    pairs[0, ::2] = np.arange(6)
    assert runs_through_places(pairs)
    assert not runs_through_places(pairs.T)


RAMP = np.arange(8, dtype=np.float32)


@pytest.mark.parametrize(
    "body",
    [
        "y = Add(x, k)",
        "y = Sub(k, x)",
        "y = Mul(x, k)",
        "y = Div(x, k)",
        "y = Pow(k, x)",
        "y = Mod<fmod = 1>(k, x)",
        "y = Min(k, x)",
        "n = Neg(k) y = Sin(n)",
        "y = Sum(x, k)",
        "y = Clip(k)",
        "u = Unsqueeze(k, i) y = Tanh(u)",
        "b = Greater(x, k) y = Cast<to = 1>(b)",
        "n = LayerNormalization(x, k) y = Add(n, k)",
        "n = Add(x, k) y = LayerNormalization(n, k)",
    ],
)
def test_what_is_added_multiplied_compared_or_moved_is_computed_with(body: str) -> None:
    found = places_in(body, k=RAMP, i=np.array([0]))
    assert found["k"].kind is Kind.COORDINATE


@pytest.mark.parametrize(
    "body",
    [
        "y = LayerNormalization(x, k)",
        "y = Tanh(k)",
        "y = custom.Add(x, k)",
        "y = com.microsoft.BiasGelu(x, k)",
    ],
)
def test_what_a_layer_alone_reads_is_a_weight(body: str) -> None:
    assert places_in(body, k=RAMP) == {}


@pytest.mark.parametrize(
    ("rows", "columns", "found"),
    [(8, 8, False), (8, 5, False), (8, 4, True), (4, 8, True), (8, 1, True), (5, 8, False)],
)
def test_a_factor_of_a_long_product_is_a_weight(rows: int, columns: int, found: bool) -> None:
    k = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    assert ("k" in places_in("y = MatMul(x, k)", f"float[8,{rows}] x", k=k)) is found
