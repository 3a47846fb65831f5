"""Where in a step a node is, as users know the step."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.graph.part import Part, part_of, source_of

BACKWARD = "backward"

_WORDS = {
    Part.LOSS: "forward",
    Part.ARITHMETIC: "forward",
    Part.RANDOM: "forward",
    Part.GRADIENT: BACKWARD,
    Part.CLIP: "clipping",
    Part.ALL_REDUCE: "sum over shards",
    Part.LOSS_SCALE: "loss scaling",
    Part.UPDATE: "update",
}


def part_word(node: ir.Node) -> str:
    """Return the part of a step that a node belongs to; that of a cast is where its input is."""
    part = part_of(node)
    while part is None and node.op_type == "Cast" and node.inputs[0] is not None:
        producer = node.inputs[0].producer()
        if producer is None:
            break
        node, part = producer, part_of(producer)
    return "forward" if part is None else _WORDS[part]


def layer_of(node: ir.Node) -> str | None:
    """Return the node of the model that a node is the gradient of; a cast belongs to its reader."""
    source = source_of(node)
    if source is not None or node.op_type != "Cast":
        return source
    readers = (source_of(reader) for value in node.outputs for reader, _ in value.uses())
    return next((layer for layer in readers if layer is not None), None)
