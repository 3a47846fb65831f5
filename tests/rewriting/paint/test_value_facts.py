"""What is known of values: each fact is found once, and constants are measured, not read."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from rewrite_text import parse

from amp_rewrite.dtypes import BFLOAT16, FLOAT16, DType
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.rewriting.paint.painting import Reason
from amp_rewrite.rewriting.paint.value_facts import ValueFacts


def facts(low: DType = FLOAT16, **constants: object) -> tuple[ValueFacts, dict[str, int]]:
    """Return what is known of y = Sigmoid(x) * 1e6 + 1e6 and of constants, and values by name."""
    model = parse(
        "g (float[2] x) => (float[2] y) <float million = {1000000.0}> { e = Sigmoid(x) "
        "f = Mul(e, million) y = Add(f, million) }"
    )
    for name, array in constants.items():
        tensor = onnx.numpy_helper.from_array(np.array(array, np.float32), name)
        model.graph.initializer.append(tensor)
    flat = read_flat(model.SerializeToString())
    numbers = {name: v for v, name in enumerate(flat.value_names)}
    return ValueFacts(build_type_graph(flat), low), numbers


@pytest.mark.parametrize(
    ("array", "magnitude"),
    [([1.0, -3.0], 3.0), ([1.0, math.inf], math.inf), ([math.nan, 2.0], 2.0), ([], 0.0)],
)
def test_the_magnitude_of_a_constant_is_measured(array: list[float], magnitude: float) -> None:
    known, numbers = facts(c=array)
    assert known.magnitude(numbers["c"]) == magnitude
    assert known.magnitude(numbers["e"]) == known.intervals[numbers["e"]].magnitude
    assert known.magnitude(numbers["x"]) == math.inf


def test_what_leaves_the_range_depends_on_the_type() -> None:
    known, numbers = facts()
    found = {value: beyond.reason for value, beyond in known.beyond.items()}
    assert found == {numbers["y"]: Reason.CERTAIN_OVERFLOW}
    wide, _ = facts(BFLOAT16)
    assert wide.beyond == {}
