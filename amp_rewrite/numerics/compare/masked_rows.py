"""Rows of attention in which every score is masked: nobody reads what such a row becomes.

Where all scores of a row carry the fill of a mask, Softmax shares its weight out as the rounding of
that fill decides, in float32 as in any other type. That happens to padding on the left of causal
attention, and to whole sequences that are padded.

Evidence: padding on the left (tests/numerics/compare/test_trusted_verdicts.py): without, rows that
nobody reads fail a good model; with, they are apart.
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

_CACHE = 4
"""The dimensions of a cache of keys or values."""

Fetch = Callable[[Collection[str]], Mapping[str, Any]]
"""Names of values of the original -> the values, for one feed."""


class MaskedRows:
    """Finds the rows of attention without any score; `axes` has the scores, and where they lie."""

    def __init__(self, model: ir.Model, floats: Collection[str]) -> None:
        """Find the first layers of attention; `floats` are values inside that can be fetched."""
        self.axes: dict[str, int] = {}
        for node in model.graph:
            if operator(node) == "Softmax" and node.inputs[0] is not None:
                name = node.inputs[0].name or ""
                if name in floats and len(self.axes) < _MOST:
                    self.axes.setdefault(name, node.attributes.get_int("axis", _LAST))

    def find(self, fetch: Fetch) -> tuple[Array, ...]:
        """Return, for each layer, which of its rows (N, L), or (L), have no score in any head."""
        values = fetch([*self.axes]) if self.axes else {}
        rows = [_without_scores(values[name], axis) for name, axis in self.axes.items()]
        return tuple(mask for mask in rows if mask is not None and mask.any())


def rows_of(output: Any, masked: tuple[Array, ...]) -> Array | None:
    """Return which rows of an output are masked whole, by its first axes; None if none is.

    It has the shape (N, L, ...), (N * L, ...), (L, ...) with N of 1, (N, H, L, D), as caches are,
    or (N, ...), of which a row is masked if all its L are.
    """
    shape = np.shape(output)
    for rows in masked:
        forms = [rows, rows.reshape(-1), np.asarray(rows.all(_LAST))]
        if len(shape) == _CACHE and rows.ndim == 2 and rows.shape == (shape[0], shape[2]):
            forms.append(np.broadcast_to(rows[:, None, :], shape[:3]))
        for form in forms:
            if form.ndim and shape[: form.ndim] == form.shape and form.any():
                return form
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
