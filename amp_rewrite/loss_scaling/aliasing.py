"""Keep a kernel from writing over a state that a skipped step has to pass on."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from amp_rewrite.grad.builder import Builder


def copy_overwritten(b: Builder, updates: Iterable[tuple[ir.Value, ir.Value]]) -> None:
    """Let BatchNormalization read copies of the running statistics that it updates.

    ONNX Runtime's kernel declares that the running mean and variance share the memory of its
    inputs, and writes there (onnxruntime/core/providers/cpu/nn/batch_norm.cc, `.Alias(3, 1)`), even
    if the input is a graph input, unless its output is a graph output. What reads the state
    afterwards, such as the else-branch of an If, would find the new one.

    A Clip without limits copies: an Identity would be removed before the memory is planned.

    Args:
        b: Adds the nodes.
        updates: (updated value, present value) of states.
    """
    for updated, present in updates:
        node = updated.producer()
        if node is None or node.op_type != "BatchNormalization" or present not in node.inputs:
            continue
        copy = b.op("Clip", present)
        copy.type, copy.shape = present.type, present.shape
        clip = copy.producer()
        assert clip is not None, "a node has just been added"
        b.graph.remove(clip)
        assert node.graph is not None, "the node is in a graph"
        node.graph.insert_before(node, clip)
        for index, value in enumerate(node.inputs):
            if value is present:
                node.replace_input_with(index, copy)
