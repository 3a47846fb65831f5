"""Which nodes of a training graph the inference graph computes already."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.graph.traverse import inputs_of


def shared_nodes(training: ir.Graph, inference: ir.Graph) -> set[ir.Node]:
    """Return the nodes of a training graph that compute what nodes of the inference graph do.

    Those have (1) the same operator and attributes, (2) the same names of inputs and outputs, and
    (3) inputs, those of their subgraphs included, that are shared as well.

    Args:
        training: The graph of a training step, sorted.
        inference: The graph that it began as.
    """
    known = {_key(node): node for node in inference}
    names = {v.name for v in (*inference.inputs, *inference.initializers.values())}
    given = (*training.inputs, *training.initializers.values())
    values = {value for value in given if value.name in names}
    found: set[ir.Node] = set()
    for node in training:
        other = known.get(_key(node))
        if other is None or any(v not in values for v in inputs_of(node)):
            continue
        if _content(node) == _content(other):
            found.add(node)
            values.update(node.outputs)
    return found


def _key(node: ir.Node) -> tuple[object, ...]:
    inputs = tuple(v and v.name for v in node.inputs)
    return (node.op_identifier(), inputs, tuple(v.name for v in node.outputs))


def _content(node: ir.Node) -> bytes:
    """Return operator, inputs, outputs and attributes as bytes; names and notes are left out."""
    proto = ir.to_proto(node)
    for field in ("name", "doc_string", "metadata_props"):
        proto.ClearField(field)
    attributes = sorted(proto.attribute, key=lambda attribute: attribute.name)
    del proto.attribute[:]
    proto.attribute.extend(attributes)
    return proto.SerializeToString(deterministic=True)
