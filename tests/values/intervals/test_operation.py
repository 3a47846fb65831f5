"""What a transfer rule sees of a node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from interval_models import NOTHING, known_of, model_of

from amp_rewrite.graph.flat import Attribute
from amp_rewrite.values.intervals.interval import UNIT, between
from amp_rewrite.values.intervals.operation import Operation, within


def operation(body: str, inputs: str = "float[2,3] x, float[2,3] z", **options: Any) -> Operation:
    """Return the last node of a model."""
    known = known_of(model_of(body, inputs, **options), {"x": (1, 2)})
    node = known.flat.n_nodes - 1
    return Operation(known, node, known.flat.inputs_of(node))


def test_inputs_may_be_left_out_or_missing() -> None:
    op = operation("y = Clip(x, , h)", constants="float h = {3}")
    assert [op.has(index) for index in range(4)] == [True, False, True, False]
    assert op.of(0) == between(1, 2)
    assert tuple(op.of(1)) == tuple(op.of(3)) == NOTHING
    assert op.of_all() == [between(1, 2), between(3, 3)]
    assert op.array(2) == 3
    assert op.array(0) is None
    assert op.array(1) is None
    assert op.shape(0) == [2, 3]
    assert op.shape(1) is None
    assert op.shape(3) is None


def test_a_value_behind_identities_is_the_same_one() -> None:
    assert operation("y = Sub(x, x)").reads_one_value
    assert operation("a = Identity(x) b = Identity(a) y = Sub(b, x)").reads_one_value
    assert not operation("y = Sub(x, z)").reads_one_value
    assert not operation("a = Abs(x) y = Sub(a, x)").reads_one_value


def test_the_opset_and_the_results_of_a_node() -> None:
    op = operation("y, s = Split<num_outputs = 2>(x)", opset=18)
    assert op.opset == 18
    assert op.n_outputs == 2
    assert op.known.flat.value_names[op.output] == "y"
    assert op.share == 2.0**-21
    assert operation("y = Abs(d)", "double[2] d, float x").share == 2.0**-21
    assert operation("y = Abs(h)", "float16[2] h, float x").share == 2.0**-8
    assert operation("y = Abs(n)", "int32[2] n, float x").share == 0


def test_attributes_that_are_left_out_have_a_default() -> None:
    op = operation("y = Softmax<axis = 1>(x)")
    assert op.attribute("axis", -1) == 1
    assert op.attribute("other", -1) == -1
    assert op.attribute("other") is None
    assert [*op.attributes] == ["axis"]


@pytest.mark.parametrize(
    ("value", "default", "found"),
    [
        (2, 1, 2),
        (2.5, 1, 1),
        ("a", 1, 1),
        ([2], 1, 1),
        (2.5, 1.0, 2.5),
        (2, 1.0, 2),
        ("a", 1.0, 1.0),
        ("a", "b", "a"),
        (b"a", "b", b"a"),
        (2, "b", "b"),
        ([2], (1, 3), [2]),
        ([2], None, [2]),
        (None, 1, 1),
    ],
)
def test_attributes_of_another_kind_than_the_default_are_left_out(
    value: Any, default: Any, found: Any
) -> None:
    held = {"a": Attribute(0, value)}
    known: Any = SimpleNamespace(flat=SimpleNamespace(attributes=lambda node: held))
    assert Operation(known, 0, ()).attribute("a", default) == found


def test_a_rule_may_be_a_bound() -> None:
    assert within(UNIT)(operation("y = Abs(x)")) is UNIT
