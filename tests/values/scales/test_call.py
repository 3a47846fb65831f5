"""A node as rules of exponents see it, and what they may say of it."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import onnx.parser
import pytest

from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.infer import infer
from amp_rewrite.rewriting.read_source import read_source
from amp_rewrite.values.scales.call import Call, Product, ScaledAttribute, System
from amp_rewrite.values.scales.exponents import Exponents

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


def test_inputs_and_outputs_that_are_not_there_are_absent() -> None:
    call = Seen("y = Clip(x, , two)").call
    assert [call.input(k) for k in range(4)] == [*call.inputs, ABSENT]
    assert call.input(1) == ABSENT
    assert call.input(2) != ABSENT
    assert [call.output(k) for k in range(3)] == [*call.outputs, ABSENT, ABSENT]
    assert call.output(0) != ABSENT


def test_an_attribute_has_a_default() -> None:
    call = Seen("y = Elu<alpha = 0.5>(x)").call
    assert call.attribute("alpha", 1.0) == pytest.approx(0.5)
    assert call.attribute("beta", 2.0) == pytest.approx(2.0)
    assert set(call.attributes) == {"alpha"}


def test_an_attribute_that_a_function_hands_on_has_its_default() -> None:
    text = f"""{HEAD.replace("]", ', "my" : 1]')} m (float[2] x) => (float[2] y)
        {{ y = my.f<a = 0.5>(x) }} <domain: "my", opset_import: ["" : 18]> f <a> (p) => (q)
        {{ q = Elu<alpha : float = @a>(p) }}"""
    flat = read_source(onnx.parser.parse_model(text), inline_functions=False)
    (function,) = flat.functions.values()
    inside = function.graph
    system = System(inside, [None] * inside.n_values, Exponents(4))
    assert Call(system, 0, [0], [1]).attribute("alpha", 3.0) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("body", "index", "expected"),
    [
        ("y = Pow(x, two)", 1, 2.0),
        ("y = Pow(x, few)", 1, -3.0),
        ("y = Pow(two, x)", 0, 2.0),
        ("y = Pow(x, whole)", 1, 5.0),
        ("y = Pow(x, more)", 1, None),
        ("y = Pow(x, z)", 1, None),
        ("y = Pow(x, two)", 0, None),
        ("y = Pow(x, two)", 2, None),
        ("y = Clip(x, , two)", 1, None),
        ("y = Clip(x, , two)", 2, 2.0),
        ("c = Constant<value_float = 0.5>() y = Pow(x, c)", 1, 0.5),
    ],
)
def test_an_input_is_a_number_if_it_is_a_constant_of_one_element(
    body: str, index: int, expected: float | None
) -> None:
    assert Seen(body).call.number(index) == expected


def test_elements_that_are_the_same_have_one_exponent() -> None:
    seen = Seen("y = Sum(x, z, x)")
    seen.call.same(ABSENT, seen.element("x"), ABSENT, seen.element("y"))
    assert seen.sets() == {frozenset("xy")}
    seen.call.same(*seen.call.inputs, *seen.call.outputs)
    assert seen.sets() == {frozenset("xyz")}
    seen.call.same()
    seen.call.same(ABSENT)
    assert seen.pinned() == set()


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


def test_a_product_has_a_power_of_each_factor_and_1_if_nothing_is_said() -> None:
    seen = Seen("y = Mul(x, z)")
    x, y, z = map(seen.element, "xyz")
    seen.call.product(y, x, z)
    seen.call.product(y, x, z, powers=(1, -1))
    assert seen.system.products == [Product(y, ((x, 1), (z, 1))), Product(y, ((x, 1), (z, -1)))]
    assert seen.pinned() == set()


@pytest.mark.parametrize("absent", [0, 1, 2])
def test_of_a_product_that_is_incomplete_nothing_is_scaled(absent: int) -> None:
    seen = Seen("y = Mul(x, z)")
    elements = [seen.element(name) for name in "yxz"]
    elements[absent] = ABSENT
    seen.call.product(*elements)
    assert seen.system.products == []
    assert seen.pinned() == {*"yxz"} - {"yxz"[absent]}


def test_what_is_pinned_says_which_node_reads_or_makes_it() -> None:
    seen = Seen("h = Neg(x) [wave] y = Sin(h)")
    seen.call.pin(ABSENT, seen.element("h"))
    assert [*seen.system.exponents.pinned.values()] == ["wave (Sin) reads or makes it"]
    assert seen.pinned() == {"h"}
    seen.call.pin(ABSENT)
    seen.call.pin()
    seen.call.pin_all()
    assert seen.pinned() == {"h", "y"}


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


def test_elements_are_the_values_and_the_places_that_have_an_exponent_of_their_own() -> None:
    seen = Seen("y = Sum(x, two, z)")
    system, flat = seen.system, seen.system.flat
    n_values = flat.n_values
    assert system.elements() == [*range(n_values)]
    slots: Mapping[str, int] = {flat.value_names[v]: k for k, v in enumerate(flat.inputs)}
    at = {name: n_values + slot for name, slot in slots.items()}
    system.constants.update({at["two"], seen.element("two")})
    system.links += [(seen.element("z"), at["z"]), (seen.element("x"), at["x"])]
    assert system.elements() == [*range(n_values), at["x"], at["two"], at["z"]]
    for name in ("x", "two", "z"):
        assert system.value_of(at[name]) == seen.element(name)
        assert system.value_of(seen.element(name)) == seen.element(name)
    assert system.value_of(n_values - 1) == n_values - 1
