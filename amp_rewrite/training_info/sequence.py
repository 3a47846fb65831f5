"""Several training_info in one step: each sees the tensors that those before it have updated."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import onnx
from onnx import helper


def follow(
    info: onnx.TrainingInfoProto,
    inference: Sequence[onnx.NodeProto],
    updates: Mapping[str, str],
    taken: Collection[str],
    suffix: str,
) -> onnx.TrainingInfoProto:
    """Return a training_info that can be combined with a graph that holds others already.

    (1) What the inference graph computes from updated tensors is computed once more from their new
    values, and read instead. (2) A value that has the name of one of an earlier algorithm gets
    another name. All other names stay, and `info` is not changed.

    Args:
        info: The training_info.
        inference: The nodes of the inference graph.
        updates: Initializer of the inference graph -> its value after the steps before.
        taken: The names of values that earlier algorithms define.
        suffix: What is appended to names.
    """
    affected = _affected(inference, updates)
    algorithm = info.algorithm
    defined = [t.name for t in algorithm.initializer]
    defined += [name for node in algorithm.node for name in node.output if name]
    names = {name: name + suffix for name in (*affected, *(n for n in defined if n in taken))}
    result = onnx.TrainingInfoProto()
    result.CopyFrom(info)
    del result.algorithm.node[:]
    for key, following in updates.items():
        result.algorithm.node.append(helper.make_node("Identity", [following], [names[key]]))
    again = [node for node in inference if any(name in affected for name in node.output)]
    for node in (*again, *algorithm.node):
        result.algorithm.node.append(_renamed(node, names))
    for entry in (*result.algorithm.initializer, *result.algorithm.output):
        entry.name = names.get(entry.name, entry.name)
    for binding in result.initialization_binding:
        if binding.key in defined:
            binding.key = names.get(binding.key, binding.key)
    for binding in result.update_binding:
        binding.value = names.get(binding.value, binding.value)
    return result


def _affected(inference: Iterable[onnx.NodeProto], updates: Mapping[str, str]) -> set[str]:
    """Return the updated tensors and what the inference graph computes from them."""
    affected = set(updates)
    for node in inference:
        if any(name in affected for name in read_names([node])):
            affected.update(name for name in node.output if name)
    return affected


def read_names(nodes: Iterable[onnx.NodeProto]) -> Iterable[str]:
    """Yield every name that nodes read, at any depth."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from read_names(graph.node)


def _renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    result = onnx.NodeProto()
    result.CopyFrom(node)
    result.input[:] = [names.get(name, name) for name in node.input]
    result.output[:] = [names.get(name, name) for name in node.output]
    for attribute in result.attribute:
        if node.op_type == "Gradient" and attribute.name == "y":
            attribute.s = _bytes(attribute.s, names)
        elif node.op_type == "Gradient" and attribute.name in ("xs", "zs"):
            attribute.strings[:] = [_bytes(name, names) for name in attribute.strings]
        for graph in (attribute.g, *attribute.graphs):
            if graph.node:  # writing to a message that is not set would set it
                nodes = [_renamed(inner, names) for inner in graph.node]
                del graph.node[:]
                graph.node.extend(nodes)
    return result


def _bytes(name: bytes, names: Mapping[str, str]) -> bytes:
    text = name.decode()
    return names.get(text, text).encode()
