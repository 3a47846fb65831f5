"""What is masked in attention that is one operator: ai.onnx's, and those of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.traits import operator
from amp_rewrite.numerics.inputs.batches import Array

Kind = Literal["query", "mask", "padding", "lengths", "past"]

_INPUTS: Mapping[str, Mapping[Kind, int]] = {
    "Attention": {"query": 0, "mask": 3, "past": 4},
    "com.microsoft::Attention": {"query": 0, "padding": 3, "past": 4, "mask": 5},
    "com.microsoft::MultiHeadAttention": {"query": 0, "padding": 4, "mask": 5, "past": 6},
    "com.microsoft::GroupQueryAttention": {"query": 0, "past": 3, "lengths": 5, "mask": 10},
}
"""Operator -> what its inputs are. "mask": added to the scores, or bool, (..., L, S) as scores are.
"padding": 1 for keys that count, (N, S) or (N, L, S), or how many count, (N). "lengths": the place
of the last key that counts, (N). See ONNX's Attention-23 and ONNX Runtime's ContribOperators.md."""

_CAUSAL: Mapping[str, str] = {
    "Attention": "is_causal",
    "com.microsoft::Attention": "unidirectional",
    "com.microsoft::MultiHeadAttention": "unidirectional",
}
"""Operator -> the attribute that says that a row sees no later key; one without always does so."""

_HEADS = 4
"""The dimensions of a query whose heads stand before its rows: (N, H, L, D)."""


@dataclass(frozen=True, slots=True)
class FusedAttention:
    """One operator.

    Attributes:
        inputs: The names of its inputs, by what they are.
        causal: Whether a row sees no later key.
    """

    inputs: Mapping[Kind, str]
    causal: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The values that say what is masked."""
        return tuple(self.inputs.values())

    def masked(self, values: Mapping[str, Any], fill: float) -> Array | None:
        """Return which rows (N, L) see no key in any head; None if that cannot be said.

        Args:
            values: The values of `names`.
            fill: Scores up to that are masked.
        """
        arrays = {kind: np.asarray(values[name]) for kind, name in self.inputs.items()}
        query, past = arrays["query"], arrays.get("past")
        if query.ndim < 3:
            return None
        batch, length = query.shape[0], query.shape[2 if query.ndim == _HEADS else 1]
        past_length = 0 if past is None or past.ndim < _HEADS else int(past.shape[-2])
        keys = past_length + length
        for kind in ("mask", "padding"):
            if kind in arrays and arrays[kind].ndim >= 2:
                keys = arrays[kind].shape[-1]
        keep = np.ones((batch, 1, length, keys), np.bool_)
        try:
            for kind in ("mask", "padding"):
                if kind in arrays:
                    keep = keep & _kept_scores(arrays[kind], kind, keys, fill)
        except ValueError:  # shapes that do not go together: another meaning than is known here
            return None
        if self.causal:
            keep = keep & np.tri(length, keys, keys - length, dtype=np.bool_)
        rows: Array = np.asarray(~keep.any((1, 3)))
        if "lengths" in arrays and past_length == 0 and arrays["lengths"].size == batch:
            rows |= np.arange(length) > arrays["lengths"].reshape(-1, 1)
        return rows


def fused_attention(node: ir.Node) -> tuple[FusedAttention, ...]:
    """Return what a node is, if it is attention with masks."""
    key = operator(node)
    places = _INPUTS.get(key)
    if places is None:
        return ()
    inputs: dict[Kind, str] = {}
    for kind, place in places.items():
        value = node.inputs[place] if place < len(node.inputs) else None
        if value is not None and value.name:
            inputs[kind] = value.name
    if "query" not in inputs or inputs.keys().isdisjoint({"mask", "padding", "lengths"}):
        return ()
    attribute = _CAUSAL.get(key)
    causal = attribute is None or bool(node.attributes.get_int(attribute, 0))
    return (FusedAttention(inputs, causal),)


def _kept_scores(mask: Array, kind: Kind, keys: int, fill: float) -> Array:
    """Return which scores a mask keeps, in a shape that goes together with (N, H, L, S)."""
    if kind == "padding":
        if mask.ndim == 1:  # how many keys count
            return (np.arange(keys) < mask.reshape(-1, 1))[:, None, None, :]
        kept = mask > 0
        return kept[:, None, None, :] if mask.ndim == 2 else kept.reshape(_in_front(kept))
    kept = mask if mask.dtype == np.bool_ else mask > fill
    return kept.reshape((1,) * (_HEADS - mask.ndim) + mask.shape)


def _in_front(mask: Array) -> tuple[int, ...]:
    """Return the shape of a mask (N, L, S) or (N, 1, L, S) with a dimension for heads."""
    return mask.shape if mask.ndim == _HEADS else (mask.shape[0], 1, *mask.shape[1:])
