"""The type of a gradient rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import onnx_ir as ir

from amp_rewrite.training.builder.builder import Builder


class IndexedSlices(NamedTuple):
    """The gradient of a table of which only some rows were read (TensorFlow's IndexedSlices).

    The dense gradient is zero but for `dense[indices[i]] += values[i]`; indices may repeat.
    """

    values: ir.Value  # (M, *row), the table's float type
    indices: ir.Value  # (M,) int64, not negative
    dense_shape: ir.Value | None = None  # (1 + rank of a row,) int64; None: the variable tells


Gradient: TypeAlias = ir.Value | IndexedSlices
Gradients: TypeAlias = Sequence[Gradient | None]
Rule: TypeAlias = Callable[[ir.Node, Sequence[ir.Value | None], Builder], Gradients]
"""(node, gradient of each output, builder) -> one gradient per input; None is no gradient.

A rule emits standard operators of the model's opset, reuses forward values, and does not undo
broadcasting: the walk sums every gradient to its input's shape. The first input of an operator that
does not broadcast it (Trait.NOT_BROADCAST) gets its gradient in that shape from the rule. At least
one output has a gradient.
"""
Rules: TypeAlias = Mapping[str, Rule]
"""Operator ("Add", or "domain::Op" outside ai.onnx) -> rule."""
