"""Turn inference behaviour into training behaviour, but in frozen parts; and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import OptimizerValueError
from amp_rewrite.grad.builder.known import (
    constant_tensor,
    copied,
    copy_of,
    input_of,
    maker,
    take_place,
)
from amp_rewrite.grad.walk import depending_on
from amp_rewrite.graph.names import place
from amp_rewrite.graph.step_part import source_in, source_key
from amp_rewrite.graph.traverse import graphs_in
from amp_rewrite.training.graph.training_graph import TrainingGraph

# operators: those that compute something else in training than in inference.
_MODAL = ("BatchNormalization", "Dropout")

_MODE = 2
"""The input of Dropout that says whether it drops."""


def turn_on_training_mode(graph: TrainingGraph, trained: Iterable[ir.Value]) -> None:
    """Make Dropout drop, and BatchNormalization use and track the batch's statistics.

    Gradients need it; `trained` are the weights that they are computed of. A BatchNormalization
    whose scale and bias are frozen stays in inference mode, unless
    `TrainingGraph.train_statistics` says otherwise. Running means and variances become states; of
    nodes that share them the second continues from what the first has computed.
    """
    present = graph.trained | set(trained)
    varying = depending_on(graph.model.graph, present)
    modal = [n for n in graph.model.graph if n.op_type in _MODAL and not n.domain]
    left = [n for n in modal if n not in graph.in_training_mode]
    tracks = graph.train_statistics
    chosen = [
        n
        for n in left
        if n.op_type == "Dropout"
        or (tracks is None and any(v in varying for v in n.inputs[1:3]))
        or tracks
    ]
    _check_not_differentiated(graph, chosen)
    graph.trains, graph.trained = True, present
    graph.in_training_mode.update(chosen)
    for node in left:
        if node.op_type == "Dropout":
            _drop(graph, node)
        elif node in graph.in_training_mode:
            _track_statistics(graph, node)
        else:
            normalise_by_running_statistics(node)


def _check_not_differentiated(graph: TrainingGraph, nodes: Sequence[ir.Node]) -> None:
    """Refuse to change the mode of nodes through which a gradient was computed."""
    if not graph.seeds:
        return
    passed = {source_in(node.metadata_props) for node in graph.model.graph}
    for node in nodes:
        if source_key(node) in passed:
            raise OptimizerValueError(
                "gradients were computed through a node in inference mode, which is trained now",
                where=place(node),
                remedy="compute all gradients at once, or, before the first ones, say "
                "freeze(..., train_statistics=True)",
            )


def _drop(graph: TrainingGraph, node: ir.Node) -> None:
    """Set training_mode unless it is computed or fed, and give the node its mask output."""
    mode = node.inputs[2] if len(node.inputs) > 2 else None
    if mode is None or graph.builder.array(mode) is not None:
        node.resize_inputs(3)
        node.replace_input_with(2, graph.builder.constant(np.array(True)))
    if len(node.outputs) < 2:
        node.resize_outputs(2)
    mask = node.outputs[1]
    mask.name = mask.name or graph.free_name(f"{node.outputs[0].name}/mask")
    mask.type, mask.shape = ir.TensorType(ir.DataType.BOOL), copied(node.outputs[0].shape)


def _track_statistics(graph: TrainingGraph, node: ir.Node) -> None:
    node.attributes["training_mode"] = ir.AttrInt64("training_mode", 1)
    if len(node.outputs) < 3:
        node.resize_outputs(3)
    for index, output in zip((3, 4), node.outputs[1:], strict=True):
        statistic = input_of(node, index)
        output.name = output.name or graph.free_name(f"{statistic.name}/running")
        output.type, output.shape = statistic.type, copied(statistic.shape)
        if not statistic.is_initializer():
            continue
        state = graph.track(statistic, "statistic")
        earlier = graph.assigned.get(state)
        if earlier is not None:
            node.replace_input_with(index, earlier)
        graph.assigned[state] = output


def turn_off_training_mode(model: ir.Model) -> None:
    """Let every BatchNormalization and Dropout do what it does in inference, in place.

    Those inside branches, loops and functions do, too. A Dropout whose mode is computed or fed
    stays as it is; a mode that may be fed is false by default.
    """
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    nodes = [node for graph in graphs for body in graphs_in(graph) for node in body]
    for node in (node for node in nodes if not node.domain):
        if node.op_type == "BatchNormalization":
            normalise_by_running_statistics(node)
        elif node.op_type == "Dropout" and len(node.inputs) > _MODE:
            mode = node.inputs[_MODE]
            if mode is not None and mode.is_graph_input() and mode.const_value is not None:
                mode.const_value = ir.tensor(np.array(False), name=mode.name)
            if mode is None or constant_tensor(mode) is None:
                continue
            node.resize_inputs(_MODE)
            if mode.is_initializer() and not (mode.uses() or mode.is_graph_output()):
                assert mode.graph is not None, "an initializer is in a graph"
                del mode.graph.initializers[str(mode.name)]


def normalise_by_running_statistics(node: ir.Node) -> None:
    """Replace a BatchNormalization in training mode by one in inference mode."""
    mode = node.attributes.get("training_mode")
    if mode is None or not (mode.is_ref() or mode.as_int()):
        return
    graph = node.graph
    assert graph is not None, "the node was found in a graph"
    attributes = {k: a for k, a in node.attributes.items() if k != "training_mode"}
    replacement = ir.Node(
        "", node.op_type, node.inputs, attributes.values(), name=node.name, num_outputs=1
    )
    graph.insert_before(node, replacement)
    take_place(replacement.outputs[0], node.outputs[0])
    for running, statistic in zip(node.outputs[1:], node.inputs[3:], strict=False):
        assert statistic is not None, "an input that is not optional"
        if running.is_graph_output():
            copy = copy_of(statistic, str(running.name))
            graph.insert_before(node, maker(copy))
            take_place(copy, running)
        else:
            ir.convenience.replace_all_uses_with(running, statistic)
    graph.remove(node, safe=True)
