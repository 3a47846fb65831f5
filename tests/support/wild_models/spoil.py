"""What files say of their values, and in which order they hold nodes."""

from __future__ import annotations

import random

import onnx
import onnx.shape_inference
from onnx import helper


def describe(model: onnx.ModelProto, rng: random.Random) -> None:
    """Add value infos: none, some or all that inference finds, with ones of values not there."""
    how = rng.random()
    if how < 0.4:
        return
    graph = model.graph
    found = onnx.shape_inference.infer_shapes(model).graph.value_info
    known = {tensor.name for tensor in graph.initializer}
    for info in found:
        if info.name not in known and rng.random() < (1.0 if how < 0.7 else 0.4):
            graph.value_info.append(info)
    if how > 0.8:
        for info in graph.value_info:
            if info.type.HasField("tensor_type") and rng.random() < 0.3:
                info.type.tensor_type.ClearField("shape")
        gone = helper.make_tensor_value_info("gone", onnx.TensorProto.FLOAT, [2])
        graph.value_info.append(gone)


def free_dimensions(model: onnx.ModelProto, rng: random.Random) -> None:
    """Leave the lengths of some outputs unsaid."""
    for info in model.graph.output:
        for dim in info.type.tensor_type.shape.dim if rng.random() < 0.3 else ():
            dim.Clear()


def unsort(model: onnx.ModelProto, rng: random.Random) -> None:
    """Put a few nodes of the main graph where they were not."""
    nodes = list(model.graph.node)
    for _ in range(rng.randint(1, 3)):
        node = nodes.pop(rng.randrange(len(nodes)))
        nodes.insert(rng.randrange(len(nodes) + 1), node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
