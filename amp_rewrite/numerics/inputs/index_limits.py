"""How many rows the tables have that inputs of row numbers choose from.

Evidence: magika, minilm_l3 and minilm_l3_ortfused: without, their row numbers are 0 and 1; with,
they are any of the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.traits import operator
from amp_rewrite.numerics.inputs.consumers import Consumers, constant, moves

# operators: places of inputs, which no trait has
_TABLES: Mapping[str, Mapping[int, int]] = {
    "Gather": {1: 0},
    "RotaryEmbedding": {3: 1},
    "com.microsoft::RotaryEmbedding": {1: 2},
    "com.microsoft::EmbedLayerNormalization": {0: 2, 1: 4, 8: 3},
}
"""Operator -> which of its inputs are indices, and which input is the table of each."""


def index_limits(model: ir.Model) -> dict[str, int]:
    """Return, for inputs that index constant tables or become one-hot, the smallest size."""
    consumers = Consumers(model)
    limits: dict[str, int] = {}
    for value in model.graph.inputs:
        sizes = [size for node, i in consumers.uses(value, moves) for size in _sizes(node, i)]
        if sizes:
            limits[value.name or ""] = min(sizes)
    return limits


def _sizes(node: ir.Node, index: int) -> Iterator[int]:
    """Yield how many rows an input of a node chooses from, if it is known to choose."""
    kind = operator(node)
    if kind == "Equal":
        classes = _count_classes(constant(node.inputs[1 - index]))
    elif kind == "OneHot" and index == 0:
        depth = constant(node.inputs[1])
        classes = None if depth is None else int(depth.numpy().reshape(-1)[0])
    else:
        classes = _rows(node, _TABLES.get(kind, {}).get(index))
    if classes:
        yield classes


def _rows(node: ir.Node, place: int | None) -> int | None:
    """Return the number of rows of the table among a node's inputs."""
    table = None if place is None or place >= len(node.inputs) else constant(node.inputs[place])
    if table is None or not table.shape.rank():
        return None
    axis = node.attributes.get_int("axis", 0) if operator(node) == "Gather" else 0
    size = table.shape[axis]
    return size if isinstance(size, int) else None


def _count_classes(tensor: ir.TensorProtocol | None) -> int | None:
    """Return n if a constant is 0, 1, ... n - 1: what is compared with that becomes one-hot."""
    if tensor is None or tensor.size < 2 or np.dtype(tensor.dtype.numpy()).kind not in "iu":
        return None
    numbers = tensor.numpy().reshape(-1)
    return tensor.size if np.array_equal(numbers, np.arange(tensor.size)) else None
