"""Turn inference behaviour into training behaviour."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from amp_rewrite.training.training_graph import TrainingGraph


def turn_on_training_mode(graph: TrainingGraph) -> None:
    """Make every Dropout drop and every BatchNormalization use and track the batch's statistics.

    It is done once for a graph; gradients need it. Running means and variances become states; where
    two BatchNormalization nodes share them, the second continues from what the first has computed.
    """
    if graph.trains:
        return
    graph.trains = True
    for node in list(graph.model.graph):
        if node.domain:
            continue
        if node.op_type == "Dropout":
            _dropout(graph, node)
        elif node.op_type == "BatchNormalization":
            _batch_normalization(graph, node)


def _dropout(graph: TrainingGraph, node: ir.Node) -> None:
    """Set training_mode unless it is computed or fed, and give the node its mask output."""
    mode = node.inputs[2] if len(node.inputs) > 2 else None
    if mode is None or graph.builder.array(mode) is not None:
        node.resize_inputs(3)
        node.replace_input_with(2, graph.builder.constant(np.array(True)))
    if len(node.outputs) < 2:
        node.resize_outputs(2)
    mask = node.outputs[1]
    mask.name = mask.name or graph.free_name(f"{node.outputs[0].name}/mask")
    mask.type, mask.shape = ir.TensorType(ir.DataType.BOOL), _copied(node.outputs[0].shape)


def _batch_normalization(graph: TrainingGraph, node: ir.Node) -> None:
    node.attributes["training_mode"] = ir.AttrInt64("training_mode", 1)
    if len(node.outputs) < 3:
        node.resize_outputs(3)
    for index, output in zip((3, 4), node.outputs[1:], strict=True):
        statistic = node.inputs[index]
        assert statistic is not None, "an input of BatchNormalization that is not optional"
        output.name = output.name or graph.free_name(f"{statistic.name}/running")
        output.type, output.shape = statistic.type, _copied(statistic.shape)
        if not statistic.is_initializer():
            continue
        state = graph.track(statistic, "statistic")
        earlier = graph.assigned.get(state)
        if earlier is not None:
            node.replace_input_with(index, earlier)
        graph.assigned[state] = output


def _copied(shape: ir.Shape | None) -> ir.Shape | None:
    return None if shape is None else shape.copy()
