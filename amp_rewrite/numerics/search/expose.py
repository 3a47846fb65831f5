"""Make values inside a model fetchable: those of the main graph, and those inside branches.

A value of a branch becomes an extra output of its If; the branch not taken gives an empty tensor
in its place. Bodies of loops stay closed: their values differ from iteration to iteration.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32

Key = TypeVar("Key", bound=Hashable)

_PREFIX = "amp-rewrite.exposed"


def expose(model: ir.Model, values: Mapping[Key, ir.Value]) -> dict[Key, str]:
    """Add graph outputs for float32 tensors; the model is changed.

    Returns:
        Key -> the name of the new output; values in loop bodies are missing.
    """
    by_graph: dict[ir.Graph, list[tuple[Key, ir.Value]]] = {}
    for key, value in values.items():
        node = value.producer()
        home = value.graph if node is None else node.graph
        if isinstance(home, ir.Graph):
            by_graph.setdefault(home, []).append((key, value))
    names: dict[Key, str] = {}
    for key, value in _collect(model.graph, by_graph):
        name = f"{_PREFIX}.{len(names)}"
        node = ir.Node("", "Identity", [value], outputs=[_float(name)])
        model.graph.append(node)
        model.graph.outputs.append(node.outputs[0])
        names[key] = name
    return names


def _collect(
    graph: ir.Graph, by_graph: Mapping[ir.Graph, list[tuple[Key, ir.Value]]]
) -> list[tuple[Key, ir.Value]]:
    outputs = list(by_graph.get(graph, ()))
    for node in list(graph):
        if node.op_type == "If" and node.domain == "":
            outputs += _from_branches(node, by_graph)
    return outputs


def _from_branches(
    node: ir.Node, by_graph: Mapping[ir.Graph, list[tuple[Key, ir.Value]]]
) -> list[tuple[Key, ir.Value]]:
    branches = [node.attributes[n].as_graph() for n in ("then_branch", "else_branch")]
    outputs: list[tuple[Key, ir.Value]] = []
    for branch in branches:
        for key, value in _collect(branch, by_graph):
            for each in branches:
                each.outputs.append(_copy(each, value) if each is branch else _empty_value(each))
            node.resize_outputs(len(node.outputs) + 1)
            output = node.outputs[-1]
            output.name = f"{_PREFIX}.{id(output)}"
            output.type = ir.TensorType(FLOAT32.ir)
            outputs.append((key, output))
    return outputs


def _copy(graph: ir.Graph, value: ir.Value) -> ir.Value:
    """Return a copy of a value: a graph must not have one value as two outputs."""
    node = ir.Node("", "Identity", [value], outputs=[_float(f"{_PREFIX}.copy.{id(value)}")])
    graph.append(node)
    return node.outputs[0]


def _empty_value(graph: ir.Graph) -> ir.Value:
    tensor = ir.AttrTensor("value", ir.Tensor(np.zeros(0, np.float32)))
    node = ir.Node("", "Constant", [], [tensor])
    node.outputs[0].name = f"{_PREFIX}.empty.{id(node)}"
    node.outputs[0].type = ir.TensorType(FLOAT32.ir)
    graph.append(node)
    return node.outputs[0]


def _float(name: str) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(FLOAT32.ir))
