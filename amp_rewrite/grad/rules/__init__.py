"""Every gradient rule, merged out of one table per family of operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

from amp_rewrite.grad.rule import Rule
from amp_rewrite.grad.rules import (
    arithmetic,
    contributed,
    convolution,
    gathering,
    matrix_products,
    normalization,
    pooling,
    recurrent,
    reductions,
    resize,
    sampling,
    shapes,
    slicing,
    softmax,
    spectra,
    stored_integers,
    unary,
)
from amp_rewrite.grad.rules.formula import Formulas

_T = TypeVar("_T")
"""A rule or a formula."""


def merge(tables: Iterable[Mapping[str, _T]]) -> Mapping[str, _T]:
    """Return one table out of many."""
    merged: dict[str, _T] = {}
    for table in tables:
        twice = merged.keys() & table.keys()
        if twice:
            raise ValueError(f"two gradient rules for {', '.join(sorted(twice))}")
        merged.update(table)
    return MappingProxyType(merged)


FORMULAS: Formulas = merge(
    (
        contributed.FORMULAS,
        stored_integers.FORMULAS,
        sampling.FORMULAS,
        spectra.FORMULAS,
    )
)
"""Operator -> the formula whose gradient is its own."""

RULES: Mapping[str, Rule] = merge(
    (
        arithmetic.RULES,
        contributed.RULES,
        softmax.RULES,
        pooling.RULES,
        normalization.RULES,
        matrix_products.RULES,
        convolution.RULES,
        gathering.RULES,
        recurrent.RULES,
        reductions.RULES,
        resize.RULES,
        shapes.RULES,
        slicing.RULES,
        spectra.RULES,
        unary.RULES,
    )
)
"""Operator ("Add", or "domain::Op" outside ai.onnx) -> rule."""

DIFFERENTIABLE = frozenset({*RULES, *FORMULAS})
"""The operators that have a rule or a formula."""
