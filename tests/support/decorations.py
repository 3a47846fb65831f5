"""Gives models what files hold beside nodes: notes, declarations, other ways to store data."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

_DOC = 6
"""The number of NodeProto.doc_string."""

_NOT_UTF8 = b"\xff\xfe"
_DENOTATION = "IMAGE"


def decorate(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """Return a copy of a model that computes the same and says it differently, as `seed` has it."""
    rng, decorated = random.Random(seed), onnx.ModelProto()
    decorated.CopyFrom(model)
    for graph in graphs_of(decorated.graph):
        for decoration in _OF_GRAPHS:
            if rng.random() < 0.4:
                decoration(graph, rng)
    for node in nodes_of(decorated):
        for decoration in _OF_NODES:
            if rng.random() < 0.1:
                decoration(node)
    if rng.random() < 0.3:
        decorated.producer_name, decorated.domain, decorated.model_version = "tests", "a.b", 3
        decorated.doc_string = "model"
        add_note(decorated, "author", "somebody")
    return decorated


def graphs_of(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and those inside it."""
    yield graph
    for node in graph.node:
        yield from _graphs_in(node)


def _graphs_in(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH and not attribute.ref_attr_name:
            yield from graphs_of(attribute.g)
        for graph in attribute.graphs:
            yield from graphs_of(graph)


def nodes_of(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a model and of its functions, at any depth."""
    for graph in graphs_of(model.graph):
        yield from graph.node
    for function in model.functions:
        for node in function.node:
            yield node
            for graph in _graphs_in(node):
                yield from graph.node


def add_note(message: Any, key: str, value: str) -> None:
    """Add metadata."""
    message.metadata_props.add(key=key, value=value)


def _declare_more(graph: onnx.GraphProto, rng: random.Random) -> None:
    """Declare some values once more, in any order, with and without types."""
    known = {info.name for info in graph.value_info}
    values = [info.name for info in (*graph.input, *graph.output)]
    values += [tensor.name for tensor in graph.initializer]
    values += [name for node in graph.node for name in node.output if name]
    names = [n for n in dict.fromkeys(values) if n not in known and rng.random() < 0.4]
    rng.shuffle(names)
    typed = {info.name: info for info in (*graph.input, *graph.output)}
    for name in [*names, "nothing"]:
        info = graph.value_info.add(name=name)
        if name in typed:
            info.type.CopyFrom(typed[name].type)


def _note_values(graph: onnx.GraphProto, rng: random.Random) -> None:
    for info in (*graph.input, *graph.output, *graph.value_info):
        if rng.random() < 0.4:
            info.doc_string = f"about {info.name}"
        if rng.random() < 0.4:
            add_note(info, "unit", rng.choice(["m", "s"]))
        if rng.random() < 0.4 and info.type.WhichOneof("value") is not None:
            info.type.denotation = rng.choice([_DENOTATION, ""])
        if rng.random() < 0.1:
            info.doc_string = ""


def _blur_shapes(graph: onnx.GraphProto, rng: random.Random) -> None:
    """Write free, named and negative dimensions, with denotations; drop some shapes."""
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.WhichOneof("value") != "tensor_type":
            continue
        tensor = info.type.tensor_type
        if rng.random() < 0.2:
            tensor.ClearField("shape")
        for dim in tensor.shape.dim:
            match rng.randrange(8):
                case 0:
                    dim.dim_value = -1
                case 1:
                    dim.dim_param = "N"
                case 2:
                    dim.Clear()
                case 3:
                    dim.denotation = rng.choice(["DATA_BATCH", ""])
                case _:
                    pass


def _drop_types(graph: onnx.GraphProto, rng: random.Random) -> None:
    for info in (*graph.input, *graph.output, *graph.value_info):
        if rng.random() < 0.2:
            info.ClearField("type")
        elif rng.random() < 0.2 and info.type.HasField("tensor_type"):
            info.type.tensor_type.elem_type = TensorProto.UNDEFINED


def _quantize(graph: onnx.GraphProto, rng: random.Random) -> None:
    names = [name for node in graph.node for name in node.output if name]
    for name in ["nothing", *rng.sample(names, min(2, len(names)))]:
        entry = graph.quantization_annotation.add(tensor_name=name)
        entry.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value=f"{name}_scale")


def _store_in_fields(graph: onnx.GraphProto, rng: random.Random) -> None:
    """Store numbers in typed fields instead of bytes, with a doc string and metadata."""
    for tensor in graph.initializer:
        if tensor.HasField("raw_data") and rng.random() < 0.5:
            array = numpy_helper.to_array(tensor)
            entries = array.flatten().tolist()
            typed = helper.make_tensor(tensor.name, tensor.data_type, array.shape, entries)
            tensor.CopyFrom(typed)
            tensor.doc_string = "a weight"
            add_note(tensor, "source", "tests")


def _note_graph(graph: onnx.GraphProto, _: random.Random) -> None:
    graph.doc_string = "graph"
    add_note(graph, "key", "graph")


def _unname(node: onnx.NodeProto) -> None:
    node.ClearField("name")


def _spell_domain(node: onnx.NodeProto) -> None:
    if not node.domain:
        node.domain = "ai.onnx"


def _name_empty_domain(node: onnx.NodeProto) -> None:
    if not node.domain:
        node.domain = ""


def _describe(node: onnx.NodeProto) -> None:
    node.doc_string = "node"


def _describe_in_bytes(node: onnx.NodeProto) -> None:
    node.ClearField("doc_string")
    node.MergeFromString(bytes([_DOC << 3 | 2, len(_NOT_UTF8)]) + _NOT_UTF8)


def _note(node: onnx.NodeProto) -> None:
    add_note(node, "key", "first")
    add_note(node, "key", "second")


def _describe_attributes(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        attribute.doc_string = "attribute"
        if attribute.type == AttributeProto.TENSOR:
            _in_fields(attribute.t)


def _in_fields(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT and tensor.HasField("raw_data"):
        entries = numpy_helper.to_array(tensor).flatten().tolist()
        tensor.ClearField("raw_data")
        tensor.float_data.extend(entries)


def _place(node: onnx.NodeProto) -> None:
    node.device_configurations.add(configuration_id="device")


_OF_GRAPHS: tuple[Callable[[onnx.GraphProto, random.Random], None], ...] = (
    *(_declare_more, _note_values, _blur_shapes, _drop_types, _quantize, _store_in_fields),
    _note_graph,
)
_OF_NODES: tuple[Callable[[onnx.NodeProto], None], ...] = (
    *(_unname, _spell_domain, _name_empty_domain, _describe, _describe_in_bytes, _note),
    *(_describe_attributes, _place),
)
