"""Which type variables of a float32 model are low in a rewritten one: found by node names."""

from __future__ import annotations

from typing import get_args

import onnx_ir as ir

from amp_rewrite.dtypes import LOW, DType, Precision
from amp_rewrite.errors import DataError
from amp_rewrite.graph import elements
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.infer import Types, infer_types
from amp_rewrite.numerics.repaint.repaint import Repainter, Slot


def precision_of(rewritten: ir.Model) -> Precision:
    """Return the low type that a model uses most, "float16" or "bfloat16".

    Raises:
        DataError: It uses neither.
    """
    found = list(infer_types(rewritten).values())
    counts = {
        name: sum(1 for t in found if elements.element(t) == LOW[name].number)
        for name in get_args(Precision)
    }
    name = max(counts, key=lambda n: counts[n])
    if not counts[name]:
        raise DataError(
            "the rewritten model has no low-precision value",
            expected="a model made by `amp-rewrite convert`",
            remedy="name the original first, then the rewritten model",
        )
    return name


def painted_slots(painter: Repainter, rewritten: ir.Model) -> frozenset[Slot]:
    """Return the slots of the original that are low in the rewritten model.

    Nodes correspond by name and operator; casts that the rewrite added have no counterpart.

    Raises:
        DataError: No low-precision node of the rewritten model is in the original.
    """
    types = infer_types(rewritten)
    twins: dict[tuple[str | None, str], list[ir.Node]] = {}
    for node in rewritten.graph.all_nodes():
        twins.setdefault((node.name, node.op_type), []).append(node)
    found: set[Slot] = set()
    for i, node in enumerate(painter.nodes):
        same = twins.get((node.name, node.op_type))
        if same:
            found |= _low_slots(painter, i, same.pop(0), types)
    if not found:
        raise DataError(
            "no node is low-precision in the rewritten model and float32 in the original",
            remedy="name the model that was rewritten as the original",
        )
    return frozenset(found)


def _low_slots(painter: Repainter, index: int, twin: ir.Node, types: Types) -> set[Slot]:
    graph, flat = painter.type_graph, painter.flat
    reads = graph.reads[flat.input_start[index] : flat.input_start[index + 1]]
    writes = graph.writes[flat.output_start[index] : flat.output_start[index + 1]]
    ports = [*zip(reads, twin.inputs, strict=False), *zip(writes, twin.outputs, strict=False)]
    return {
        Slot(index, graph.kind_of(vertex).variables[0])
        for vertex, value in ports
        if vertex != ABSENT and value is not None and _is_low(types.get(value), painter.low)
    }


def _is_low(type_: str | None, low: DType) -> bool:
    return type_ is not None and elements.element(type_) == low.number
