"""What kind of number an operator makes of counts, places, flags, inputs, constants and data."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from amp_rewrite.graph.flat import Operator
from amp_rewrite.values.counts.count_rules import Fact, Kind, Operand, rule_of

OPERANDS = {
    "count": Operand(Fact(Kind.COUNT, 1, True)),
    "range": Operand(Fact(Kind.COUNT, 2, True, True)),
    "place": Operand(Fact(Kind.COORDINATE, 3, ramp=True)),
    "grid": Operand(Fact(Kind.COORDINATE, 4, ramp=True), is_constant=True),
    "moved": Operand(Fact(Kind.COORDINATE, 5, ramp=True, mixed=True)),
    "input": Operand(Fact(Kind.INPUT, 6)),
    "pixels": Operand(Fact(Kind.INPUT, 7, True)),
    "flag": Operand(Fact(Kind.FLAG, 8, True)),
    "data": Operand(None),
    "half": Operand(None, np.array([0.5])),
    "one": Operand(None, np.array([1.0])),
}


class Made(NamedTuple):
    """What is known of a result, but its origin."""

    kind: Kind
    whole: bool = False
    ramp: bool = False
    mixed: bool = False


def fact(op: str, operands: str, terms: int | None = None) -> Fact | None:
    """Return what is known of a result."""
    rule = rule_of(Operator("", op, ""), terms)
    return None if rule is None else rule([OPERANDS[name] for name in operands.split()])


def made(op: str, operands: str, terms: int | None = None) -> Made | None:
    """Return the same without its origin."""
    found = fact(op, operands, terms)
    return None if found is None else Made(found.kind, found.whole, found.ramp, found.mixed)


COUNT, WHOLE = Made(Kind.COUNT), Made(Kind.COUNT, True)
INPUT, FLAG = Made(Kind.INPUT), Made(Kind.FLAG, True)
COORDINATE = Made(Kind.COORDINATE)
PLACE, MOVED = Made(Kind.COORDINATE, ramp=True), Made(Kind.COORDINATE, ramp=True, mixed=True)


@pytest.mark.parametrize(
    ("operands", "expected"),
    [
        ("count", COUNT),
        ("count half", COUNT),
        ("half count", COORDINATE),
        ("half input", INPUT),
        ("half half", None),
        ("flag half", None),
        ("half flag", None),
        ("count data", None),
        ("data count", None),
    ],
)
def test_powers(operands: str, expected: Made | None) -> None:
    assert made("Pow", operands) == expected


@pytest.mark.parametrize("op", ["Sqrt", "Log", "Exp"])
def test_roots_and_logarithms_are_no_counts(op: str) -> None:
    assert made(op, "count") == COORDINATE
    assert made(op, "range") == PLACE
    assert made(op, "place") == PLACE
    assert made(op, "input") == INPUT
    assert made(op, "flag") is None
    assert made(op, "half") is None


@pytest.mark.parametrize("op", ["ReduceSum", "CumSum", "ReduceL1", "ReduceSumSquare"])
def test_a_sum_counts_flags_and_is_no_place_any_more(op: str) -> None:
    assert made(op, "flag") == WHOLE
    assert made(op, "count") == WHOLE
    assert made(op, "place") == COORDINATE
    assert made(op, "input") == INPUT
    assert made(op, "data") is None


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceL2", "AveragePool"])
def test_a_mean_of_flags_is_none_and_of_counts_one(op: str) -> None:
    assert made(op, "flag") is None
    assert made(op, "count") == COUNT
    assert made(op, "range") == Made(Kind.COUNT, ramp=True)
    assert made(op, "data") is None


@pytest.mark.parametrize("op", ["MatMul", "Gemm", "Conv", "Einsum"])
@pytest.mark.parametrize(
    ("operands", "terms", "expected"),
    [
        ("count half", 1, COUNT),
        ("flag flag", 1, FLAG),
        ("place data", 1, MOVED),
        ("count data", 1, None),
        ("place data", 4, MOVED),
        ("data place", 4, MOVED),
        ("place data", 5, None),
        ("place data", None, None),
        ("grid data", 5, MOVED),
        ("data grid", None, MOVED),
        ("count data", 2, None),
        ("data half", 2, None),
        ("half half", 2, None),
        ("flag one", 256, None),
        ("flag one", 257, WHOLE),
        ("flag flag", 257, WHOLE),
        ("flag one", None, WHOLE),
        ("flag half", 257, None),
        ("flag half", None, None),
        ("count one", 100, WHOLE),
        ("count half", 3, COUNT),
        ("count half", 4, None),
        ("count half", None, COUNT),
        ("input half", 3, INPUT),
        ("pixels one", 3, INPUT),
        ("pixels one", 4, None),
        ("input half", 4, None),
        ("input half", None, None),
        ("place half", 3, PLACE),
        ("place half", 4, None),
        ("place half", None, None),
        ("count one data", 2, WHOLE),
        ("data half count", 2, None),
    ],
)
def test_sums_of_products(op: str, operands: str, terms: int | None, expected: Made | None) -> None:
    assert made(op, operands, terms) == expected


def test_a_result_began_where_its_strongest_operand_began() -> None:
    for op in ("Add", "Mul", "Div", "Mean"):
        found = fact(op, "flag count")
        assert found is None or found.origin == 1
    for found in (fact("Pow", "place count"), fact("Sqrt", "place"), fact("Clip", "place count")):
        assert found is not None
        assert found.origin == 3
