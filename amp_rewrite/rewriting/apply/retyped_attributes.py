"""Attributes that say an element type: which become others, and how a node's message gets them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto

from amp_rewrite.graph.dataflow import TypeGraph, vertices_in
from amp_rewrite.graph.proto.flat_proto import FlatProto
from amp_rewrite.graph.rounding import to_low
from amp_rewrite.graph.traits import Trait
from amp_rewrite.rewriting.plan.casts import CastPlan
from amp_rewrite.rewriting.plan.typed_attributes import typed_attributes


def retyped_attributes(
    flat: FlatProto, graph: TypeGraph, plan: CastPlan
) -> dict[int, list[AttributeProto]]:
    """Return, by node, the attributes that become others."""
    low = plan.low
    allowed, found = graph.mask(plan.vertices), dict[int, list[AttributeProto]]()
    typed = graph.where(lambda kind: bool(typed_attributes(kind)))
    for vertex in vertices_in(allowed & typed):
        names = typed_attributes(graph.kind_of(vertex))
        entries = [number_attribute(name, low.number) for name in names]
        found.setdefault(graph.nodes[vertex], []).extend(entries)
    for vertex, saturate in plan.fills.items():
        node = graph.nodes[vertex]
        given = flat.attributes(node).get("value")
        fill = np.zeros(1, np.float32) if given is None else given.value.numpy()
        tensor = TensorProto(data_type=low.number, dims=fill.shape)
        tensor.raw_data = to_low(np.asarray(fill), low, saturate=saturate).tobytes()
        found.setdefault(node, []).append(tensor_attribute("value", tensor))
    for vertex in vertices_in(allowed & graph.having(Trait.TYPED_LIKE_FIRST)):
        node = graph.nodes[vertex]
        names = [*flat.attributes(node), *(a.name for a in found.get(node, ()))]
        if "dtype" not in names:
            base = graph.base(flat.outputs_of(node)[0])
            found.setdefault(node, []).append(number_attribute("dtype", base.number))
    return found


def number_attribute(name: str, number: int) -> AttributeProto:
    """Return an attribute that is a number."""
    return AttributeProto(name=name, type=AttributeProto.INT, i=number)


def tensor_attribute(name: str, tensor: TensorProto) -> AttributeProto:
    """Return an attribute that is a tensor."""
    return AttributeProto(name=name, type=AttributeProto.TENSOR, t=tensor)


def set_attribute(node: NodeProto, entry: AttributeProto) -> None:
    """Give a node an attribute, in the place of one of that name."""
    for attribute in node.attribute:
        if attribute.name == entry.name:
            attribute.CopyFrom(entry)
            return
    node.attribute.append(entry)


def drop_attributes(node: NodeProto, names: Iterable[str]) -> None:
    """Remove a node's attributes of these names."""
    kept = [a for a in node.attribute if a.name not in names]
    if len(kept) < len(node.attribute):
        copies = [AttributeProto.FromString(a.SerializeToString()) for a in kept]
        del node.attribute[:]
        node.attribute.extend(copies)
