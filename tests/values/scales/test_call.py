"""A node as rules of exponents see it, and what they may say of it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import onnx.parser
import pytest

from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.infer import infer
from amp_rewrite.rewriting.read_source import read_source
from amp_rewrite.values.scales.call import Call, Exponents, ScaledAttribute, System

HEAD = '<ir_version: 9, opset_import: ["" : 18]>'
CONSTANTS = (
    "float two = {2.0}, float[1] few = {-3.0}, float[2] more = {1.0, 2.0}, int64 whole = {5}"
)


class Seen:
    """The last node of a model, and the elements of its values by their names."""

    def __init__(self, body: str, given: str = "float[2] x, float[2] z") -> None:
        text = f"{HEAD} m ({given}) => (float[2] y) <{CONSTANTS}> {{ {body} }}"
        flat = read_source(onnx.parser.parse_model(text), inline_functions=False)
        exponents = Exponents(flat.n_values + len(flat.inputs))
        self.system = System(flat, infer(flat), exponents)
        node = flat.n_nodes - 1
        read, made = flat.inputs_of(node), flat.outputs_of(node)
        self.call = Call(self.system, node, [*read], [*made])

    def element(self, name: str) -> int:
        return self.system.flat.value_names.index(name)

    def pinned(self) -> set[str]:
        """Return the names of the values that have exponent 0."""
        union, names = self.system.exponents, self.system.flat.value_names
        found = [v for v in range(len(names)) if union.find(v)[0] in union.pinned]
        return {names[v] for v in found}

    def sets(self) -> set[frozenset[str]]:
        """Return the names of the values that are tied together, with at least two in a set."""
        union, names = self.system.exponents, self.system.flat.value_names
        sets: dict[int, set[str]] = {}
        for value, name in enumerate(names):
            sets.setdefault(union.find(value)[0], set()).add(name)
        return {frozenset(held) for held in sets.values() if len(held) > 1}


def test_a_ratio_ties_two_elements_and_pins_one_that_is_alone() -> None:
    seen = Seen("y = Sqrt(x)")
    x, y = seen.element("x"), seen.element("y")
    seen.call.ratio(y, x, Fraction(1, 2))
    (root_x, of_x), (root_y, of_y) = map(seen.system.exponents.find, (x, y))
    assert root_x == root_y
    assert Fraction(of_y) / of_x == Fraction(1, 2)
    assert seen.pinned() == set()
    for elements, expected in (((x, ABSENT), "x"), ((ABSENT, y), "y")):
        seen = Seen("y = Sqrt(x)")
        seen.call.ratio(*elements, 2)
        assert seen.pinned() == {expected}


@pytest.mark.parametrize("absent", [0, 1, 2])
def test_of_a_product_that_is_incomplete_nothing_is_scaled(absent: int) -> None:
    seen = Seen("y = Mul(x, z)")
    elements = [seen.element(name) for name in "yxz"]
    elements[absent] = ABSENT
    seen.call.product(*elements)
    assert seen.system.products == []
    assert seen.pinned() == {*"yxz"} - {"yxz"[absent]}


def test_an_attribute_is_scaled_with_an_element_that_is_there() -> None:
    seen = Seen("y = Elu(x)")
    seen.call.scale_attribute("alpha", 1.0, ABSENT)
    assert seen.system.attributes == []
    seen.call.scale_attribute("alpha", 1.0, 0)
    seen.call.scale_attribute("alpha", 0.5, 1, 2)
    node = seen.call.node
    assert seen.system.attributes == [
        ScaledAttribute(node, "alpha", 1.0, 0, 1),
        ScaledAttribute(node, "alpha", 0.5, 1, 2),
    ]


def test_a_circle_with_another_ratio_leaves_zero_alone():
    exponents = Exponents(2)
    exponents.unite(1, 0, 2)
    exponents.unite(1, 0, 3)
    assert exponents.find(0)[0] in exponents.pinned
    assert exponents.find(1)[0] in exponents.pinned


@pytest.mark.parametrize("first", [True, False])
def test_a_pin_holds_for_the_whole_set_before_and_after_it_is_united(first: bool):
    exponents = Exponents(3)
    if first:
        exponents.pin(0, "an input")
    exponents.unite(1, 0)
    exponents.unite(2, 1, -1)
    if not first:
        exponents.pin(0, "an input")
    assert all(exponents.find(e)[0] in exponents.pinned for e in range(3))
    assert {exponents.pinned[exponents.find(e)[0]] for e in range(3)} == {"an input"}


def test_random_ties_agree_with_a_solution_that_is_known():
    rng = np.random.default_rng(0)
    known = [int(k) for k in rng.choice([-4, -2, -1, 1, 2, 4], 200)]
    exponents = Exponents(200)
    for a, b in rng.integers(0, 200, (300, 2)).tolist():
        exponents.unite(a, b, Fraction(known[a], known[b]))
    assert not exponents.pinned
    for element in range(200):
        root, ratio = exponents.find(element)
        assert known[element] == ratio * known[root]
