"""What a transfer rule sees of a node."""

from __future__ import annotations

from typing import Any

import pytest
from interval_models import bounds_of, known_of, model_of

from amp_rewrite.values.intervals.operation import Operation


def operation(body: str, inputs: str = "float[2,3] x, float[2,3] z", **options: Any) -> Operation:
    """Return the last node of a model."""
    known = known_of(model_of(body, inputs, **options), {"x": (1, 2)})
    node = known.flat.n_nodes - 1
    return Operation(known, node, known.flat.inputs_of(node))


def test_a_foreign_attribute_of_another_kind_is_no_error() -> None:
    node = 'com.microsoft.FusedMatMul<alpha: string = "two">(x, w)'
    constants = "float[3,1] w = {1, 1, 1}"
    found = bounds_of(f"y = {node}", given={"x": (1, 2)}, constants=constants)
    assert found[:2] == pytest.approx((3, 6), rel=1e-5)
