"""Which exponents a system gets: the smallest ones with which its elements fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

import onnx.parser
import pytest

from amp_rewrite.graph.infer import infer
from amp_rewrite.rewriting.read_source import read_source
from amp_rewrite.values.scales.call import Exponents, Product, Ratio, System
from amp_rewrite.values.scales.solve import Solution, is_solution, solve

INF = math.inf
GIVEN_UP = "it is a factor of a product of which another one is scaled"
HELD = "it is multiplied with what is not scaled"

MODEL = """<ir_version: 9, opset_import: ["" : 18]> m (float x) => (float y)
    <float k = {1.0}, float l = {2.0}> {
        a = Relu(x) b = Relu(a) c = Relu(b) d = Relu(c) e = Relu(d) f = Relu(e)
        n = Neg(k) s = Sum(f, k, l, n) y = Neg(s) }"""


class Ties:
    """The values of a model, which nothing ties together unless a test does: x, a to f, y and s.

    k and l are constants, and n is made of k.
    """

    def __init__(self) -> None:
        flat = read_source(onnx.parser.parse_model(MODEL), inline_functions=False)
        count = flat.n_values + len(flat.inputs)
        self.system = System(flat, infer(flat), Exponents(count))
        self.number: Callable[[str], int] = flat.value_names.index

    def tie(self, one: str, other: str, ratio: Ratio = 1) -> Ties:
        """Let the exponent of one be a multiple of that of the other."""
        self.system.exponents.unite(self.number(one), self.number(other), ratio)
        return self

    def pin(self, *names: str) -> Ties:
        """Let values have exponent 0."""
        for name in names:
            self.system.exponents.pin(self.number(name), "pinned")
        return self

    def product(self, result: str, **powers: int) -> Ties:
        """Let a value be a product of powers of others."""
        factors = tuple((self.number(name), power) for name, power in powers.items())
        self.system.products.append(Product(self.number(result), factors))
        return self

    def solution(self, roofs: Mapping[str, float] | None = None, /, **limits: float) -> Solution:
        """Solve the system; roofs are those of some values, others have none."""
        names = self.system.flat.value_names
        found = solve(
            self.system,
            {self.number(name): limit for name, limit in limits.items()},
            None if roofs is None else lambda value: roofs.get(names[value], INF),
        )
        assert is_solution(self.system, found.exponents)
        return found

    def solved(
        self, roofs: Mapping[str, float] | None = None, /, **limits: float
    ) -> dict[str, int]:
        """Return the exponents by name."""
        names = self.system.flat.value_names
        return {names[v]: e for v, e in self.solution(roofs, **limits).exponents.items()}


@pytest.mark.parametrize(
    ("ratio", "limits", "expected"),
    [
        (1, {"a": -2.0, "b": -3.0}, {"a": -3, "b": -3}),
        (1, {"a": -3.0, "b": -2.0}, {"a": -3, "b": -3}),
        (2, {"a": -3.0}, {"a": -4, "b": -2}),
        (2, {"b": -3.0}, {"a": -6, "b": -3}),
        (-1, {"a": -2.0}, {"a": -2, "b": 2}),
        (-1, {"b": -2.0, "a": 2.0}, {"a": 2, "b": -2}),
        (-1, {"b": -2.0, "a": 1.0}, {}),
    ],
)
def test_elements_of_one_set_fit_all_of_them(
    ratio: Ratio, limits: dict[str, float], expected: dict[str, int]
) -> None:
    assert Ties().tie("a", "b", ratio).solved(**limits) == expected
    assert Ties().tie("b", "a", 1 / Fraction(ratio)).solved(**limits) == expected


@pytest.mark.parametrize(("roof", "fits"), [(4.0, True), (3.9, False)])
@pytest.mark.parametrize(("one", "other"), ["ab", "ba"])
def test_what_grows_has_a_roof(one: str, other: str, roof: float, fits: bool) -> None:
    found = Ties().tie("a", "b", -1).solved({other: roof}, **{one: -4.0})
    assert found == ({one: -4, other: 4} if fits else {})


def test_what_has_a_limit_has_no_roof_and_a_constant_at_a_reader_none() -> None:
    ties = Ties().tie("a", "b", -1)
    assert ties.solved({"b": 1.0}, a=-4.0, b=5.0) == {"a": -4, "b": 4}
    ties = Ties()
    flat, system = ties.system.flat, ties.system
    read = flat.n_values + flat.inputs.index(ties.number("l"))
    system.exponents.unite(read, ties.number("a"), -1)
    system.constants.add(read)
    found = solve(system, {ties.number("a"): -4.0}, lambda value: 1.0)
    assert found.exponents == {ties.number("a"): -4, read: 4}


@pytest.mark.parametrize(
    ("pinned", "limits", "expected"),
    [
        ("", {"c": -2.0}, {"c": -2, "a": -2}),
        ("", {"a": -2.0}, {"c": -2, "a": -2}),
        ("", {"b": -2.0}, {"c": -2, "b": -2}),
        ("", {"a": -2.0, "b": -5.0}, {"c": -5, "b": -5}),
        ("", {"a": -5.0, "b": -2.0}, {"c": -5, "a": -5}),
        ("c", {"a": -2.0}, {"a": -2, "b": 2}),
        ("c", {"a": -2.0, "b": 1.0}, {}),
        ("a", {"b": -2.0}, {"c": -2, "b": -2}),
        ("a", {"c": -2.0}, {"c": -2, "b": -2}),
        ("b", {"c": -2.0}, {"c": -2, "a": -2}),
        ("ca", {"b": -2.0}, {}),
        ("ab", {"c": -2.0}, {}),
        ("abc", {"d": -2.0}, {"d": -2}),
    ],
)
def test_a_product_of_two_values(
    pinned: str, limits: dict[str, float], expected: dict[str, int]
) -> None:
    assert Ties().pin(*pinned).product("c", a=1, b=1).solved(**limits) == expected


def test_what_is_given_up_or_multiplied_with_what_is_not_scaled_is_refused() -> None:
    found = Ties().product("c", a=1, b=1).solution(a=-2.0, b=-5.0)
    assert [*found.refused.values()] == [GIVEN_UP]
    found = Ties().pin("c", "b").product("c", a=1, b=1).solution(a=-2.0)
    assert [*found.refused.values()] == [HELD]


def test_products_are_settled_in_turn_as_long_as_one_of_them_can_be() -> None:
    ties = Ties().pin("x").product("c", a=1, b=1).product("a", d=1, e=1).product("x", e=1, f=-1)
    ties.product("d", e=1, y=1).product("x", f=1).pin("y")
    assert ties.solved(c=-2.0) == {"c": -2, "b": -2}


def test_of_factors_that_would_grow_the_one_with_the_lower_roof_is_scaled() -> None:
    for low, high in ("ab", "ba"):
        ties = Ties().tie("d", "a", -1).tie("e", "b", -1).product("c", a=1, b=1)
        found = ties.solved({low: 5.0, high: 9.0}, d=-2.0, e=-2.0)
        assert found == {low: 2, {"a": "d", "b": "e"}[low]: -2, "c": 2}


@pytest.mark.parametrize(
    ("powers", "pinned", "limits", "exponents"),
    [
        ({"a": 1, "k": 1}, "a", {"c": -2.0}, {"c": -2, "k": -2}),
        ({"k": 1, "a": 1}, "a", {"c": -2.0}, {"c": -2, "k": -2}),
        ({"a": 1, "k": 1}, "", {"c": -2.0}, {"c": -2, "k": -2}),
        ({"a": 1, "k": 1}, "", {"c": -2.0, "a": -3.0}, {"c": -2, "a": -3, "k": 1}),
        ({"a": 2, "k": 1}, "", {"c": -2.0, "a": -3.0}, {"c": -2, "a": -3, "k": 4}),
        ({"a": 1, "k": 1}, "", {"c": -2.0, "a": -2.0}, {"c": -2, "a": -2}),
        ({"k": 1, "l": 1}, "", {"c": -2.0}, {"c": -2, "l": -2}),
        ({"a": 1, "k": 2}, "a", {"c": -2.0}, {"c": -2, "k": -1}),
        ({"a": 1, "k": 1}, "a", {"k": -2.0}, {"c": -2, "k": -2}),
    ],
)
def test_a_constant_takes_what_its_product_needs(
    powers: dict[str, int], pinned: str, limits: dict[str, float], exponents: dict[str, int]
) -> None:
    assert Ties().pin(*pinned).product("c", **powers).solved(**limits) == exponents


@pytest.mark.parametrize(
    ("exponents", "expected"),
    [
        ({}, True),
        ({"a": -2, "b": -1}, True),
        ({"a": -2, "b": -2}, False),
        ({"a": -2}, False),
        ({"x": 1}, False),
        ({"c": 3, "d": 2, "e": -1}, False),
        ({"c": 3}, False),
    ],
)
def test_exponents_are_a_solution_if_they_meet_every_equation(
    exponents: dict[str, int], expected: bool
) -> None:
    ties = Ties().tie("a", "b", 2).pin("x").product("c", d=1, e=1)
    numbers = {ties.number(name): exponent for name, exponent in exponents.items()}
    assert is_solution(ties.system, numbers) is expected
