"""Every gradient rule, merged out of one table per family of operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from amp_rewrite.grad.rule import Rule, Rules
from amp_rewrite.grad.rules import (
    arithmetic,
    convolution,
    gathering,
    matrix_products,
    normalization,
    pooling,
    recurrent,
    reductions,
    resize,
    shapes,
    slicing,
    softmax,
    unary,
)


def merge(tables: Iterable[Rules]) -> Rules:
    """Return one table out of many."""
    merged: dict[str, Rule] = {}
    for table in tables:
        twice = merged.keys() & table.keys()
        if twice:
            raise ValueError(f"two gradient rules for {', '.join(sorted(twice))}")
        merged.update(table)
    return MappingProxyType(merged)


RULES: Mapping[str, Rule] = merge(
    (
        arithmetic.RULES,
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
        unary.RULES,
    )
)
"""Operator ("Add", or "domain::Op" outside ai.onnx) -> rule."""
