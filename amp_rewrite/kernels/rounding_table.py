"""Where a runtime rounds: lists/fusions/rounding_<runtime>_<version>.json as a frozen table.

A runtime that computes several nodes as one rounds once, at the end. A table is made by probing.
Its JSON, version 1:

    {"version": 1, "runtime": "openvino 2026.4.1", "source": "...",
     "together": ["Add", "Mul", ...],
     "behind": {"Conv": {"alone": ["Relu", ...], "constant": ["Mul", ...], "tensor": ["Add"]}, ...},
     "folded": {"Conv": [1, 2], ...},
     "cut": {"Div": "reciprocal", "LeakyRelu": "alpha", "Mul": "factor"}}

Operators of `together` that read each other are computed as one. An operator of `behind` with
constant weights (or of two tensors, where the row's name ends so) is computed with a chain of
operators after it that have no other input (`alone`), a constant, or, once, another tensor. A
constant factor in the chain is multiplied into the inputs in `folded` when the model is loaded
(emulate/folded_weights.py). The constant of an operator of `cut` is not rounded to nearest: 1 / its
divisor, an attribute, or weights times the factor after their product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from amp_rewrite import targets
from amp_rewrite.kernels.kernel_table import check_format, shipped

FORMAT_VERSION = 1

RECIPROCAL = "reciprocal"
"""The entry of `cut` for operators that multiply with 1 / a constant; of others an attribute."""

FACTOR = "factor"
"""The entry for operators that multiply a product with weights by a constant."""

OF_TENSORS = " of tensors"
"""The end of the name of a row of `behind` that is about products without constant weights."""


@dataclass(frozen=True, slots=True)
class Followers:
    """Operators that are computed together with the one before them, by their other input.

    That is none (`alone`), a constant, or a tensor that is computed, once in a chain.
    """

    alone: frozenset[str]
    constant: frozenset[str]
    tensor: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class RoundingTable:
    """Operators whose result a runtime rounds once, as in the JSON above."""

    runtime: str
    together: frozenset[str]
    behind: Mapping[str, Followers]
    folded: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    cut: Mapping[str, str] = field(default_factory=dict[str, str])


def of_target(target: targets.Target) -> RoundingTable | None:
    """Return where a target rounds; None is after every node, as several targets do."""
    return None if target.rounding is None else _load(target.rounding)


@cache
def _load(name: str) -> RoundingTable:
    return shipped("fusions", f"rounding_{name}", "rounding", parse)


def parse(data: Mapping[str, Any]) -> RoundingTable:
    """Return the table in a decoded JSON file."""
    check_format(data, "rounding", FORMAT_VERSION)
    behind = {
        op: Followers(*(frozenset(row[key]) for key in ("alone", "constant", "tensor")))
        for op, row in data["behind"].items()
    }
    folded = {op: tuple(map(int, inputs)) for op, inputs in data["folded"].items()}
    return RoundingTable(
        data["runtime"],
        frozenset(data["together"]),
        behind,
        folded,
        dict(data["cut"]),
    )
