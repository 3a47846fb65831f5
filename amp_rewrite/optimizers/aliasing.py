"""Keep a kernel from writing over a state that a skipped step has to pass on."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from amp_rewrite.builder.builder import Builder

_RUNNING = (3, 4)
"""The inputs of BatchNormalization that are running statistics."""


def copy_overwritten(b: Builder, states: Iterable[ir.Value]) -> None:
    """Let BatchNormalization read copies of the running statistics that it updates.

    ONNX Runtime's kernel declares that the running mean and variance share the memory of its
    inputs, and writes there (onnxruntime/core/providers/cpu/nn/batch_norm.cc, `.Alias(3, 1)`), even
    if the input is a graph input, unless its output is a graph output. What reads the state
    afterwards, such as the else-branch of an If, would find the new one.

    A Clip without limits copies: an Identity would be removed before the memory is planned.

    Args:
        b: Adds the nodes.
        states: The present values of states.
    """
    for state in states:
        readers = [(u.node, u.idx) for u in state.uses() if _overwrites(b.graph, u.node, u.idx)]
        if not readers:
            continue
        copy = b.op("Clip", state)
        copy.type, copy.shape = state.type, state.shape
        clip = copy.producer()
        assert clip is not None, "a node has just been added"
        b.graph.remove(clip)
        nodes = {node for node, _ in readers}
        b.graph.insert_before(next(node for node in b.graph if node in nodes), clip)
        for node, index in readers:
            node.replace_input_with(index, copy)


def _overwrites(graph: ir.Graph, node: ir.Node, index: int) -> bool:
    """Return whether a node of the graph may write over an input."""
    trains = node.attributes.get_int("training_mode", 0) == 1
    normalizes = node.op_type == "BatchNormalization" and trains
    return normalizes and index in _RUNNING and node.graph is graph
