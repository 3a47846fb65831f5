"""Attention whose queries, keys and values are slices of one transposed product.

OpenVINO 2026.4.1 computes it wrongly, in float32 as well, where a text is exactly as long as there
are heads and shapes are static: up to .97 of its norm apart. It mistakes one axis for the other
where it computes the products and the Softmax together.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from amp_rewrite.graph.traits import operator
from amp_rewrite.graph.traverse import graphs_in

APART = {"SNIPPETS_MODE": "DISABLE"}
"""The condition for it: nothing but what oneDNN joins is computed together."""

_ORDERS = ((2, 0, 3, 1, 4), (3, 0, 2, 1, 4))
"""(batch, words, 3, heads, size) and (batch, words, heads, 3, size), with the 3 in front."""

_HEADS, _WORDS = 2, 3
"""The axes of the result."""


def packs_heads(model: ir.Model) -> bool:
    """Tell whether a model has such a Transpose, of any lengths."""
    return any(
        operator(node) == "Transpose" and tuple(node.attributes.get_ints("perm", ())) in _ORDERS
        for graph in graphs_in(model.graph)
        for node in graph
    )


def is_as_long_as_heads(model: Any) -> bool:
    """Tell whether an openvino.Model has such a Transpose to as many heads as words."""
    return any(_is_square(op) for op in model.get_ops() if op.get_type_name() == "Transpose")


def _is_square(transpose: Any) -> bool:
    shape = transpose.get_output_partial_shape(0)
    if shape.rank.is_dynamic or shape.rank.get_length() != len(_ORDERS[0]):
        return False
    heads, words = shape[_HEADS], shape[_WORDS]
    if heads.is_dynamic or words.is_dynamic:
        return False
    return heads.get_length() == words.get_length() > 1
