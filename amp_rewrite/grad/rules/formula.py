"""Formulas: an operator as other operators, through which its gradient is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.graph.names import place

Outputs: TypeAlias = Sequence[ir.Value | None]
"""The outputs of a node; None is one without a gradient, whose shape is not inferred either."""
Formula: TypeAlias = Callable[[ir.Node, Builder], Outputs]
"""(node, builder) -> the outputs of the node, computed by operators that have rules.

What a gradient does not need of them is removed again.
"""
Formulas: TypeAlias = Mapping[str, Formula]
"""Operator ("GridSample", or "domain::Op" outside ai.onnx) -> formula."""


def option(node: ir.Node, index: int) -> ir.Value | None:
    """Return an input of a node, or None where it has none there."""
    return node.inputs[index] if len(node.inputs) > index else None


def shape_of(b: Builder, *lengths: ir.Value | int) -> ir.Value:
    """Return a shape of lengths: numbers, and 1-D int64 values of one or more elements."""
    parts = [[n] if isinstance(n, int) else b.ints(n) for n in lengths]
    if None not in parts:
        return b.constant([n for part in parts for n in part or ()])
    return b.concat([b.constant([n]) if isinstance(n, int) else n for n in lengths], 0)


def count(b: Builder, length: ir.Value) -> ir.Value:
    """Return 0, 1, .. below a length: 1-D int64 of one element."""
    return b.range(0, b.reshape(length, []))


def refuse(node: ir.Node, what: str, found: object = None) -> GradientError:
    """Return the error of a use of an operator that its formula does not cover."""
    return GradientError(f"{what} has no gradient rule", where=place(node), found=found)
