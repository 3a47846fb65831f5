"""Gradients of several losses: what each of them adds to the sum."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from amp_rewrite.graph.keys import BY_LOSS_KEY


def remember_parts(value: ir.Value, parts: Sequence[ir.Value | None]) -> None:
    """Take note of what each loss adds to a gradient.

    Args:
        value: The numbers of the sum.
        parts: For each loss a value that is finite only if all numbers are that it adds; None if
            the loss does not depend on the variable.
    """
    value.meta[BY_LOSS_KEY] = tuple(parts)


def parts_of(value: ir.Value) -> tuple[ir.Value | None, ...] | None:
    """Return what `remember_parts` has noted, or None."""
    return value.meta.get(BY_LOSS_KEY)
