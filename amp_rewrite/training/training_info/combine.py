"""Put a training algorithm and its inference graph into one graph."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import onnx
import onnx_ir as ir
from onnx import helper

from amp_rewrite.errors import TrainingInfoError
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.save import to_proto
from amp_rewrite.graph.names import FreeNames
from amp_rewrite.training.step.cut_step import values_by_name


def combine_all(
    model: ir.Model, infos: Sequence[onnx.TrainingInfoProto], base_dir: str | None = None
) -> list[onnx.TrainingInfoProto]:
    """Append algorithms to the main graph, in place, so that they run one after the other.

    Each sees the tensors that those before it have updated.

    Returns:
        The training_info with the names that values have in the combined graph.

    Raises:
        GraphError: An algorithm is not valid.
        TrainingInfoError: It defines a value that the inference graph defines.
    """
    nodes = [ir.serde.serialize_node(node) for node in model.graph] if len(infos) > 1 else []
    inference = set(values_by_name(model.graph))
    updates: dict[str, str] = {}
    combined: list[onnx.TrainingInfoProto] = []
    for index, info in enumerate(infos):
        if index:
            taken = values_by_name(model.graph).keys() - inference
            info = follow(info, nodes, updates, taken, f"/{index}")
        combine(model, info.algorithm, base_dir)
        updates.update({b.key: b.value for b in info.update_binding if b.key in inference})
        combined.append(info)
    return combined


def combine(model: ir.Model, algorithm: onnx.GraphProto, base_dir: str | None = None) -> None:
    """Append inputs, initializers, nodes and outputs of an algorithm to the main graph, in place.

    Nodes of the algorithm may read any value of the inference graph. An input that both declare is
    one input.

    Raises:
        GraphError: The algorithm is not valid.
        TrainingInfoError: It defines a value that the inference graph defines.
    """
    main = model.graph
    outer = values_by_name(main)
    _check_unique(algorithm, outer)
    graph = _read(model, algorithm, outer, base_dir)
    outputs = list(graph.outputs)
    graph.outputs.clear()
    stand_ins = {v: outer[str(v.name)] for v in graph.inputs if v.name in outer}
    inputs = [v for v in graph.inputs if v not in stand_ins]
    initializers = [v for v in graph.initializers.values() if v not in stand_ins]
    graph.inputs.clear()
    graph.initializers.clear()
    for old, new in stand_ins.items():
        ir.convenience.replace_all_uses_with(old, new)
    nodes = list(graph)
    graph.remove(nodes)
    names = FreeNames((node.name for node in main), form="{}/algorithm_{}")
    for node in nodes:
        node.name = names.take(node.name or "")
    main.extend(nodes)
    main.inputs.extend(inputs)
    for value in initializers:
        main.register_initializer(value)
    for output in (stand_ins.get(v, v) for v in outputs):
        if not output.is_graph_output():
            main.outputs.append(output)


def _check_unique(algorithm: onnx.GraphProto, outer: dict[str, ir.Value]) -> None:
    defined = [t.name for t in algorithm.initializer]
    defined += [t.values.name for t in algorithm.sparse_initializer]
    defined += [name for node in algorithm.node for name in node.output]
    for name in defined:
        if name and name in outer:
            raise TrainingInfoError(
                "the algorithm defines a value of the inference graph once more",
                where=f"training_info, value {name!r}",
                expected="names that differ from those of the inference graph",
            )


def _read(
    model: ir.Model, algorithm: onnx.GraphProto, outer: dict[str, ir.Value], base_dir: str | None
) -> ir.Graph:
    """Read an algorithm whose outer values are declared as inputs."""
    proto = _proto_of(algorithm, model)
    declared = {info.name for info in algorithm.input}
    outputs = (info.name for info in algorithm.output)
    for name in dict.fromkeys((*read_names(algorithm.node), *outputs)):
        if name in outer and name not in declared:
            proto.graph.input.add(name=name)
    return load(proto, base_dir=base_dir).graph


def model_of(graph: onnx.GraphProto, model: ir.Model, base_dir: str | None) -> ir.Model:
    """Return a graph of training_info as a model of its own, with the functions of `model`.

    Raises:
        GraphError: The graph is not valid.
    """
    proto = _proto_of(graph, model)
    if model.functions:
        proto.functions.extend(to_proto(model).functions)
    return load(proto, base_dir=base_dir)


def _proto_of(graph: onnx.GraphProto, model: ir.Model) -> onnx.ModelProto:
    """Return a graph as a model that imports the operators that `model` imports."""
    proto = onnx.ModelProto(ir_version=model.ir_version)
    for domain, version in model.graph.opset_imports.items():
        proto.opset_import.add(domain=domain, version=version)
    proto.graph.CopyFrom(graph)
    return proto


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
