"""How large the indices may be that a model looks up in its tables."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.graph.traits import Trait, has, row_of


def index_limits(model: ir.Model) -> dict[str, int]:
    """Return, for inputs that index constant tables by Gather, the size of the smallest table."""
    limits: dict[str, int] = {}
    for value in model.graph.inputs:
        sizes = list(_table_sizes(value))
        if sizes:
            limits[value.name or ""] = min(sizes)
    return limits


def _table_sizes(value: ir.Value) -> list[int]:
    """Return the sizes of the tables that a value indexes, directly or after moving elements."""
    sizes: list[int] = []
    waiting, seen = [value], {value}
    while waiting:
        for node, index in waiting.pop().uses():
            if node.op_type == "Gather" and index == 1:
                size = _table_size(node)
                if size:
                    sizes.append(size)
            elif _passes_on(node, index) and node.outputs[0] not in seen:
                seen.add(node.outputs[0])
                waiting.append(node.outputs[0])
    return sizes


def _passes_on(node: ir.Node, index: int) -> bool:
    """Tell whether a node's output holds the numbers of one of its inputs."""
    data = row_of(node).data
    return has(node, Trait.MOVES, Trait.CASTS) and (data is None or index in data)


def _table_size(node: ir.Node) -> int | None:
    table = node.inputs[0]
    if table is None:
        return None
    tensor = table.const_value
    producer = table.producer()
    if producer is not None and producer.op_type == "Constant" and "value" in producer.attributes:
        tensor = producer.attributes["value"].as_tensor()
    if tensor is None or not tensor.shape.rank():
        return None
    size = tensor.shape[node.attributes.get_int("axis", 0)]
    return size if isinstance(size, int) else None
