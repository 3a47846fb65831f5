"""Rows of attention in which every score is masked: nobody reads what such a row becomes.

Where all scores of a row carry the fill of a mask, Softmax shares its weight out as the rounding of
that fill decides, in float32 as in any other type. That happens to padding on the left of causal
attention, and to whole sequences that are padded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.traits import operator
from amp_rewrite.numerics.inputs.batches import Array

MASKED = -5000.0
"""Scores up to that are masked: half of the weakest fill that exporters write, -1e4."""

_MOST = 4
"""How many layers of attention are looked at: one mask is for all of them, as a rule."""

_LAST = -1

Fetch = Callable[[Collection[str]], Mapping[str, Any]]
"""Names of values of the original -> the values, for one feed."""


class MaskedRows:
    """Finds the rows of a model's outputs that belong to rows of attention without any score."""

    def __init__(self, model: ir.Model, known: Collection[str]) -> None:
        """Find the scores of the first layers of attention among the `known` values of a model."""
        found: dict[str, int] = {}
        for node in model.graph:
            if operator(node) == "Softmax" and node.inputs[0] is not None:
                name = node.inputs[0].name or ""
                if name in known and len(found) < _MOST:
                    found.setdefault(name, node.attributes.get_int("axis", _LAST))
        self._axes = found

    def find(self, fetch: Fetch) -> tuple[Array, ...]:
        """Return, for each layer, which of its rows (N, L), or (L), have no score in any head."""
        values = fetch(list(self._axes)) if self._axes else {}
        rows = [_without_scores(values[name], axis) for name, axis in self._axes.items()]
        return tuple(found for found in rows if found is not None and found.any())


def rows_of(output: Any, masked: tuple[Array, ...]) -> Array | None:
    """Return which rows of an output are masked whole, by its first axes; None if none is.

    Args:
        output: The output, of shape (N, L, ...), (N * L, ...), (L, ...) with N of 1, or (N, ...),
            of which a row is masked if all its L are.
        masked: What `MaskedRows.find` returns.
    """
    shape = np.shape(output)
    for rows in masked:
        whole: Array = np.asarray(rows.all(_LAST))
        for candidate in (rows, rows.reshape(-1), whole):
            leading = candidate.ndim
            if leading and shape[:leading] == candidate.shape and candidate.any():
                return candidate
    return None


def _without_scores(scores: Any, axis: int) -> Array | None:
    """Return the rows (N, L) of scores (N, ..., L, S), or (L) of (L, S), that are masked whole."""
    array = np.asarray(scores)
    if array.ndim < 2 or axis not in (_LAST, array.ndim - 1) or not array.size:
        return None
    rows: Array = np.asarray((array <= MASKED).all(_LAST))
    if rows.ndim > 2:
        rows = np.asarray(rows.reshape(rows.shape[0], -1, rows.shape[-1]).all(1))
    return rows
