"""Keep the running statistics of BatchNormalization as they were until a step is applied."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.grad.part import PART_KEY, Part

_RUNNING = (3, 4)
"""The inputs of BatchNormalization that are running statistics."""


def protect_statistics(graph: ir.Graph) -> None:
    """Let BatchNormalization read copies of the running statistics that are graph inputs.

    ONNX Runtime's kernel writes the next statistics over those that it reads where the next ones
    are not themselves graph outputs, so that a skipped step would not find the old ones. A Sum of
    one term is a copy that its optimizer keeps, unlike Identity; it costs one number a channel.
    """
    copies: dict[ir.Value, ir.Value] = {}
    for node in list(graph):
        if not _tracks(node):
            continue
        for index in _RUNNING:
            statistic = node.inputs[index]
            if statistic is None or not statistic.is_graph_input():
                continue
            if statistic not in copies:
                copies[statistic] = _copy(node, statistic)
            node.replace_input_with(index, copies[statistic])


def _tracks(node: ir.Node) -> bool:
    if node.op_type != "BatchNormalization" or node.domain:
        return False
    return node.attributes.get_int("training_mode", 0) == 1


def _copy(before: ir.Node, value: ir.Value) -> ir.Value:
    marks: dict[str, str] = {PART_KEY: Part.UPDATE}
    node = ir.node("Sum", [value], name=f"{value.name}/present", metadata_props=marks)
    copy = node.outputs[0]
    copy.name, copy.type, copy.shape = f"{value.name}:present", value.type, value.shape
    before.prepend(node)
    return copy
