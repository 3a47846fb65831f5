"""Normalizations and recurrent cells: bounded by how much is normalised together."""

from __future__ import annotations

import math
from typing import Any

import pytest
from interval_models import bounds_of, ends, known_of, model_of, named, near
from rewrite_text import needs_opset

INF = math.inf
ROOM = 1.001


@pytest.mark.parametrize(
    ("node", "shape", "scales", "together"),
    [
        ("LayerNormalization(x, s)", "2,3,4", "4", 4),
        ("LayerNormalization<axis = 1>(x, s)", "2,3,4", "3,4", 12),
        ("LayerNormalization<axis = -2>(x, s)", "2,3,4", "4", 12),
        ("LayerNormalization(x, s)", "2,3,N", "4", 4),
        ("LayerNormalization(x, s)", "2,3,4", "1", 4),
        ("LayerNormalization(x, s)", "2,3,4", "N", 4),
        ("LayerNormalization(x, s)", "2,3,N", "1", INF),
        ("LayerNormalization<axis = 1>(x, s)", "2,N,4", "4", INF),
        ("SimplifiedLayerNormalization(x, s)", "2,3,4", "4", 4),
        ("SimplifiedLayerNormalization<axis = 1>(x, s)", "2,3,4", "4", 12),
        ("InstanceNormalization(x, s, b)", "2,3,5,4", "3", 20),
        ("InstanceNormalization(x, s, b)", "N,M,5,4", "M", 20),
        ("GroupNormalization<num_groups = 2>(x, s, b)", "2,4,3,3", "4", 18),
        ("GroupNormalization<num_groups = 1>(x, s, b)", "2,4,3,3", "4", 36),
        pytest.param("RMSNormalization(x, s)", "2,3,4", "4", 4, marks=needs_opset(23), id="RMS"),
        pytest.param(
            "RMSNormalization<axis = 1>(x, s)",
            "2,3,4",
            "4",
            12,
            marks=needs_opset(23),
            id="RMS over two axes",
        ),
    ],
)
def test_a_normalised_number_is_no_larger_than_the_root_of_their_number(
    node: str, shape: str, scales: str, together: float
) -> None:
    opset = 23 if node.startswith("RMS") else 21
    inputs = f"float[{shape}] x, float[{scales}] s, float[{scales}] b"
    found = bounds_of(f"y = {node}", inputs, {"s": (1, 3), "b": 0}, opset=opset)
    bound = 3 * math.sqrt(together) * ROOM
    assert found[:2] == ends(-bound, bound)


@pytest.mark.parametrize(
    ("attributes", "given", "expected"),
    [
        ("epsilon = 0.0", {}, (12, 14)),
        ("epsilon = 12.0", {}, (11, 12)),
        ("epsilon = 0.0", {"v": (0, 4)}, (-INF, INF)),
        ("epsilon = 0.0", {"v": (-1, 4)}, (-INF, INF)),
        ("epsilon = 0.0", {"x": (1, INF)}, (-INF, INF)),
        ("epsilon = 0.0, training_mode = 1", {}, (-INF, INF)),
        ("momentum = 0.5", {"v": (0, 0)}, (10 + 4e2 * math.sqrt(10), 10 + 8e2 * math.sqrt(10))),
    ],
)
def test_with_fixed_statistics_a_batch_is_scaled_and_moved(
    attributes: str, given: dict[str, Any], expected: Any
) -> None:
    said = {"x": (1, 3), "s": 2, "b": 10, "m": -1, "v": 4, **given}
    inputs = "float[1,1,2] x, float[1] s, float[1] b, float[1] m, float[1] v"
    found = bounds_of(f"y = BatchNormalization<{attributes}>(x, s, b, m, v)", inputs, said)
    assert found[:2] == ends(*expected)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("", (0, 6)),
        (", bias = 16.0", (0, 6 / 8)),
        (", bias = 4.0, beta = 0.5", (0, 3)),
        (", bias = 4.0, beta = 0.5, alpha = 0.0", (0, 3)),
        (", bias = 0.0", (-INF, INF)),
        (", bias = -1.0", (-INF, INF)),
    ],
)
def test_neighbouring_channels_make_a_response_smaller(attributes: str, expected: Any) -> None:
    found = bounds_of(f"y = LRN<size = 3{attributes}>(x)", "float[1,3,2] x", {"x": (2, 6)})
    assert found == near(expected)


@pytest.mark.parametrize(
    ("attribute", "shape", "together"),
    [
        ("", "2,3,4,5", 40),
        ("<axes = [1]>", "2,3,4,5", 3),
        ("<axes = [-1, -4]>", "2,3,4,5", 10),
        ("<axes = [1]>", "2,N,4,5", INF),
    ],
)
def test_a_spread_is_bounded_by_the_axes_of_the_mean(
    attribute: str, shape: str, together: float
) -> None:
    found = bounds_of(f"y = MeanVarianceNormalization{attribute}(x)", f"float[{shape}] x")
    bound = math.sqrt(together) * ROOM
    assert found[:2] == ends(-bound, bound)


@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
def test_states_are_bounded_by_those_that_they_begin_with(operator: str) -> None:
    gates = {"LSTM": 8, "GRU": 6, "RNN": 2}[operator]
    inputs = f"float[3,1,2] x, float[1,{gates},2] w, float[1,{gates},2] r, float[1,1,2] h"
    outputs = "y, e, c" if operator == "LSTM" else "y, e"

    def states(attributes: str, begin: str) -> list[tuple[float, float]]:
        body = f"{outputs} = {operator}<hidden_size = 2{attributes}>(x, w, r{begin})"
        found = known_of(model_of(body, inputs), {"h": (2, 7)})
        return [named(found, name)[:2] for name in outputs.split(", ")]

    rest = [(-INF, INF)] if operator == "LSTM" else []
    assert states("", "") == [ends(-1, 1), ends(-1, 1), *rest]
    assert states("", ", , , h") == [ends(-1, 7), ends(-1, 7), *rest]
    number = {"LSTM": 3, "GRU": 2, "RNN": 1}[operator]
    names = ", ".join(number * ['"Relu"'])
    activations = f", activations = [{names}]"
    assert states(activations, "") == [(-INF, INF)] * len(outputs.split(", "))
