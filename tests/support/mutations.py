"""Changes of a model that keep it a protobuf message but break what a graph promises.

Every mutation takes a random number generator and a model, and changes one thing in place: what
exporters with a defect, truncated edits and hostile files hand to a reader. A mutation that finds
nothing to change leaves the model alone.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

import onnx
import onnx.defs
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from onnx import AttributeProto, TensorProto, helper

Mutation = Callable[[random.Random, onnx.ModelProto], None]
M = TypeVar("M", bound=Message)

NUMBERS = (0, 1, -1, 2, 3, 7, 16, 22, 99, 127, 2**31 - 1, -(2**31))
LARGE = (2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
NAMES = ("", " ", "nowhere", "a\nb", "a\0b", "::", "/", "é̂🙂", "[red]", "%s{}", "n" * 5000)
KEYS = ("step", "forward", "part", "gradient_of", "dropout", "order", "check", "training", "new")
"""What metadata keys of the package end in, and one that it does not know."""

TEXTS = ("", "{", "null", "[]", "{}", "3", '"text"', "true", "gradient", "unknown", "\0", "AAAA")
DEPTHS = (5, 20, 31, 33)
"""Levels of nesting; the reader allows 32, and protobuf parses no more than 33 graphs."""


def mutate(rng: random.Random, model: onnx.ModelProto) -> None:
    """Change a model in one place, less often in a few."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        with suppress(DecodeError):  # what is nested too deeply cannot be copied
            rng.choice(MUTATIONS)(rng, model)


def messages(message: Message) -> Iterator[Any]:
    """Yield a message and every message inside it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for entry in value if field.is_repeated else [value]:
                yield from messages(entry)


def pick(rng: random.Random, model: onnx.ModelProto, kind: type[M]) -> M | None:
    """Return one of the messages of a kind, or None if there are none."""
    found = [message for message in messages(model) if isinstance(message, kind)]
    return rng.choice(found) if found else None


def graph_of(rng: random.Random, model: onnx.ModelProto) -> onnx.GraphProto:
    return pick(rng, model, onnx.GraphProto) or model.graph


def value_name(rng: random.Random, model: onnx.ModelProto) -> str:
    """Return the name of some value, or one that names nothing."""
    node = pick(rng, model, onnx.NodeProto)
    known = [*node.input, *node.output] if node is not None else []
    return rng.choice([*known, rng.choice(NAMES)])


@cache
def operators() -> tuple[tuple[str, str], ...]:
    """Return (domain, operator) for every operator that the installed onnx knows."""
    return tuple(sorted({(s.domain, s.name) for s in onnx.defs.get_all_schemas_with_history()}))


# Attributes


def _replace_attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    attribute = pick(rng, model, AttributeProto)
    if attribute is None:
        return
    values: tuple[Any, ...] = (
        *(3, -1, 2**62, 1.5, float("nan"), "text", b"\xff", [1, 2], [-(2**63)], [0.5], ["a", "b"]),
        helper.make_tensor("t", TensorProto.FLOAT, [2], [1.0, 2.0]),
        helper.make_tensor_type_proto(TensorProto.FLOAT, [2]),
        helper.make_graph([], "empty", [], []),
    )
    attribute.CopyFrom(helper.make_attribute(attribute.name, rng.choice(values)))


def _borrow_attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    node, attribute = pick(rng, model, onnx.NodeProto), pick(rng, model, AttributeProto)
    if node is not None and attribute is not None:
        copied = AttributeProto.FromString(attribute.SerializeToString())
        node.attribute.append(copied)


def _move_subgraph(rng: random.Random, model: onnx.ModelProto) -> None:
    """Hand a graph to a node that has none, or as a list of graphs."""
    node = pick(rng, model, onnx.NodeProto)
    graph = onnx.GraphProto.FromString(graph_of(rng, model).SerializeToString())
    if node is None or len(graph.node) > 50:
        return
    name = rng.choice(("body", "then_branch", "else_branch", "graphs"))
    value = [graph, graph] if name == "graphs" else graph
    node.attribute.append(helper.make_attribute(name, value))


# Nodes and their ends


def _ends(rng: random.Random, model: onnx.ModelProto) -> Any:
    node = pick(rng, model, onnx.NodeProto)
    return [] if node is None else rng.choice((node.input, node.output))


def _add_end(rng: random.Random, model: onnx.ModelProto) -> None:
    ends = _ends(rng, model)
    name = value_name(rng, model) if rng.random() < 0.6 else f"extra_{rng.randrange(99)}"
    ends.insert(rng.randrange(len(ends) + 1), name)


def _rewire(rng: random.Random, model: onnx.ModelProto) -> None:
    """Let an end have the name of another value: cycles, two producers, other types."""
    ends = _ends(rng, model)
    if ends:
        ends[rng.randrange(len(ends))] = value_name(rng, model)


def _change_operator(rng: random.Random, model: onnx.ModelProto) -> None:
    node = pick(rng, model, onnx.NodeProto)
    if node is not None:
        node.domain, node.op_type = rng.choice(operators())


def _shuffle_nodes(rng: random.Random, model: onnx.ModelProto) -> None:
    nodes = graph_of(rng, model).node
    mixed = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    rng.shuffle(mixed)
    del nodes[:]
    nodes.extend(mixed)


def _rename_value(rng: random.Random, model: onnx.ModelProto) -> None:
    """Rename a value everywhere, so that only the name is odd."""
    old, new = value_name(rng, model), rng.choice(NAMES)
    for node in messages(model):
        if isinstance(node, onnx.NodeProto):
            for ends in (node.input, node.output):
                ends[:] = [new if name == old else name for name in ends]
        elif isinstance(node, onnx.ValueInfoProto | TensorProto) and node.name == old:
            node.name = new


def _nest(rng: random.Random, model: onnx.ModelProto) -> None:
    """Put a node inside Ifs inside Ifs."""
    graph = graph_of(rng, model)
    for _ in range(rng.choice(DEPTHS)):
        node = graph.node.add(op_type="If", input=["c"])
        graph = node.attribute.add(name="then_branch", type=AttributeProto.GRAPH).g


# Graph inputs, outputs, initializers and types


def _change_element_type(rng: random.Random, model: onnx.ModelProto) -> None:
    tensor = pick(rng, model, TensorProto if rng.random() < 0.5 else onnx.TypeProto.Tensor)
    number = rng.choice((*TensorProto.DataType.values(), 77, -1))
    if isinstance(tensor, TensorProto):
        tensor.data_type = number
    elif isinstance(tensor, onnx.TypeProto.Tensor):
        tensor.elem_type = number


def _change_type(rng: random.Random, model: onnx.ModelProto) -> None:
    """Make a type a container, a sparse one, a map, an opaque one, or none."""
    type_ = pick(rng, model, onnx.TypeProto)
    if type_ is None:
        return
    inner = onnx.TypeProto.FromString(type_.SerializeToString())
    type_.Clear()
    match rng.randrange(7):
        case 0:
            type_.sequence_type.elem_type.CopyFrom(inner)
        case 1:
            type_.optional_type.elem_type.CopyFrom(inner)
        case 2:
            type_.sparse_tensor_type.elem_type = TensorProto.FLOAT
        case 3:
            type_.map_type.key_type = TensorProto.INT64
            type_.map_type.value_type.CopyFrom(inner)
        case 4:
            type_.opaque_type.name = "thing"
        case 5:
            for _ in range(rng.choice(DEPTHS)):
                type_ = type_.sequence_type.elem_type
            type_.tensor_type.elem_type = TensorProto.FLOAT
        case _:
            rng.choice((type_.sequence_type, type_.optional_type)).SetInParent()


def _change_shape(rng: random.Random, model: onnx.ModelProto) -> None:
    shape = pick(rng, model, onnx.TensorShapeProto)
    if shape is not None:
        dim = rng.choice(shape.dim) if shape.dim and rng.random() < 0.7 else shape.dim.add()
        dim.dim_value = rng.choice((*NUMBERS, *LARGE))


# Tensors


def _change_dims(rng: random.Random, model: onnx.ModelProto) -> None:
    tensor = pick(rng, model, TensorProto)
    if tensor is None:
        return
    number = rng.choice((*NUMBERS, *LARGE))
    if tensor.dims and rng.random() < 0.7:
        tensor.dims[rng.randrange(len(tensor.dims))] = number
    else:
        tensor.dims.append(number)


def _change_data(rng: random.Random, model: onnx.ModelProto) -> None:
    tensor = pick(rng, model, TensorProto)
    if tensor is None:
        return
    match rng.randrange(6):
        case 0:
            tensor.raw_data = tensor.raw_data[:-1]
        case 1:
            tensor.raw_data = tensor.raw_data * 2 + b"\x01"
        case 2:
            tensor.ClearField("raw_data")
        case 3:
            tensor.float_data.append(1.0)
        case 4:
            tensor.segment.begin = 1
        case _:
            tensor.raw_data = rng.randbytes(len(tensor.raw_data))  # infinities and NaN


def _empty_tensor(rng: random.Random, model: onnx.ModelProto) -> None:
    """Leave no elements in dimensions that say so, or that are large beside a zero."""
    tensor = pick(rng, model, TensorProto)
    if tensor is not None:
        name, kind = tensor.name, tensor.data_type
        tensor.Clear()
        tensor.name, tensor.data_type = name, kind
        tensor.dims.extend(rng.choice(([0], [0, 2**40], [2**40, 0, 3], [0] * 70)))


def _make_external(rng: random.Random, model: onnx.ModelProto) -> None:
    tensor = pick(rng, model, TensorProto)
    if tensor is None:
        return
    if rng.random() < 0.7:
        tensor.data_location = TensorProto.EXTERNAL
    where = {
        "location": ("weights.data", "weights.data", "no.data", "../weights.data", "", "/dev/zero"),
        "offset": ("0", "4", "-1", "x", str(2**70)),
        "length": ("16", "0", "-1", "9" * 30, ""),
        "checksum": ("abc",),
    }
    for key in rng.sample(sorted(where), rng.randrange(1, 5)):
        tensor.external_data.add(key=key, value=rng.choice(where[key]))


def _make_sparse(rng: random.Random, model: onnx.ModelProto) -> None:
    """Add a sparse initializer or a sparse attribute, most of them malformed."""
    graph = graph_of(rng, model)
    values = helper.make_tensor(value_name(rng, model), TensorProto.FLOAT, [2], [1.5, 2.5])
    numbers = rng.choice(([0, 3], [3, 0], [0, 9], [-1, 0]))
    indices = helper.make_tensor("", TensorProto.INT64, [2], numbers)
    dims = rng.choice(([4], [2, 2], [], [-4], [2**40], [2**31, 2**31]))
    sparse = onnx.SparseTensorProto(values=values, indices=indices, dims=dims)
    if rng.random() < 0.5:
        graph.sparse_initializer.append(sparse)
    else:
        node = graph.node.add(op_type="Constant", output=[f"sparse_{rng.randrange(99)}"])
        node.attribute.append(helper.make_attribute("sparse_value", sparse))


# The model as a whole


def _change_opsets(rng: random.Random, model: onnx.ModelProto) -> None:
    owner = rng.choice((model, *model.functions))
    opsets = owner.opset_import
    match rng.randrange(5):
        case 0:
            del opsets[:]
        case 1 if opsets:
            del opsets[rng.randrange(len(opsets))]
        case 2 if opsets:
            opsets.append(rng.choice(opsets))
            opsets[-1].version += rng.choice((0, 1))
        case 3 if opsets:
            rng.choice(opsets).version = rng.choice((*NUMBERS, *LARGE, *range(1, 27)))
        case _:
            domain = rng.choice(("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "own", *NAMES))
            opsets.add(domain=domain, version=rng.choice((1, 3, 15, 0, -1, 2**40)))


def _change_functions(rng: random.Random, model: onnx.ModelProto) -> None:
    if not model.functions:
        function = model.functions.add(domain="own", name=value_name(rng, model))
        function.node.extend(model.graph.node[:3])
        return
    function = rng.choice(model.functions)
    match rng.randrange(7):
        case 0:
            model.functions.append(function)
        case 1:
            function.node.add(domain=function.domain, op_type=function.name, output=["again"])
        case 2:
            function.name = rng.choice(model.functions).name
        case 3:
            rng.choice((function.input, function.output)).append(value_name(rng, model))
        case 4:
            function.attribute.append(rng.choice(("k", "", "axis")))
        case 5:
            function.attribute_proto.append(helper.make_attribute("k", 1))
        case _:
            del function.node[:]


def _call_function(rng: random.Random, model: onnx.ModelProto) -> None:
    node = pick(rng, model, onnx.NodeProto)
    if node is not None and model.functions:
        function = rng.choice(model.functions)
        node.domain, node.op_type = function.domain, function.name


def _shadow_operator(rng: random.Random, model: onnx.ModelProto) -> None:
    """Give an operator of the model a body of the model's own."""
    node = pick(rng, model, onnx.NodeProto)
    if node is not None:
        function = model.functions.add(domain=node.domain, name=node.op_type)
        function.input.extend(f"i{index}" for index in range(len(node.input)))
        function.opset_import.extend(model.opset_import)


# Metadata of this package


def _mark(rng: random.Random, model: onnx.ModelProto) -> None:
    owner = pick(rng, model, onnx.NodeProto) if rng.random() < 0.5 else model
    entries: Any = (owner or model).metadata_props
    own = [entry for entry in entries if entry.key.startswith("amp_rewrite.")]
    if own and rng.random() < 0.6:
        rng.choice(own).value = rng.choice(TEXTS)
    elif own and rng.random() < 0.3:
        entries.remove(rng.choice(own))
    else:
        entries.add(key=f"amp_rewrite.{rng.choice(KEYS)}", value=rng.choice(TEXTS))


def _change_description(rng: random.Random, model: onnx.ModelProto) -> None:
    """Change one value in the JSON with which a training step describes itself."""
    for entry in model.metadata_props:
        if entry.key == "amp_rewrite.step" and entry.value not in TEXTS:
            content = json.loads(entry.value)
            _change_json(rng, content)
            entry.value = json.dumps(content)


def _change_json(rng: random.Random, content: Any) -> None:
    keys = list(content) if isinstance(content, dict) else list(range(len(content)))
    if not keys:
        return
    key = rng.choice(keys)
    inner = content[key]
    if isinstance(inner, dict | list) and inner and rng.random() < 0.7:
        _change_json(rng, inner)
    elif rng.random() < 0.3:
        del content[key]
    else:
        values = (None, 1, -1, 2**70, 0.5, "x", "", [], ["x"], [1], {}, {"x": 1}, True)
        content[key] = rng.choice(values)


# Any field at all


def change_field(rng: random.Random, model: onnx.ModelProto) -> None:
    """Set, clear, repeat, reorder or remove one field somewhere in the model."""
    message = rng.choice(list(messages(model)))
    field = rng.choice(message.DESCRIPTOR.fields)
    name = field.name
    if field.is_repeated:
        _change_list(rng, getattr(message, name), field, model)
    elif rng.random() < 0.3:
        message.ClearField(name)
    elif field.message_type is not None:
        getattr(message, name).SetInParent()
    else:
        setattr(message, name, _scalar(rng, field, model))


def _change_list(
    rng: random.Random, entries: Any, field: FieldDescriptor, model: onnx.ModelProto
) -> None:
    if len(entries) and rng.random() < 0.4:
        del entries[rng.randrange(len(entries))]
    elif field.message_type is None:
        entries.insert(rng.randrange(len(entries) + 1), _scalar(rng, field, model))
    elif len(entries):
        copied = [type(entry)() for entry in entries]
        for new, entry in zip(copied, entries, strict=True):
            new.CopyFrom(entry)
        rng.shuffle(copied)
        if rng.random() < 0.5:
            del entries[:]
        entries.extend(copied)
    else:
        entries.add()


def _scalar(rng: random.Random, field: FieldDescriptor, model: onnx.ModelProto) -> Any:
    match field.cpp_type:
        case field.CPPTYPE_STRING:
            text = value_name(rng, model)
            is_bytes = field.type == field.TYPE_BYTES
            return text.encode() + b"\xff" * (rng.random() < 0.2) if is_bytes else text
        case field.CPPTYPE_ENUM:
            return rng.choice(field.enum_type.values).number
        case field.CPPTYPE_FLOAT | field.CPPTYPE_DOUBLE:
            return rng.choice((0.0, -1.5, float("nan")))
        case field.CPPTYPE_UINT64:
            return abs(rng.choice(NUMBERS))
        case _:
            return rng.choice(NUMBERS)


MUTATIONS: tuple[Mutation, ...] = (
    *(_replace_attribute, _borrow_attribute, _move_subgraph, _nest),
    *(_add_end, _rewire, _change_operator, _shuffle_nodes, _rename_value),
    *(_change_element_type, _change_type, _change_shape),
    *(_change_dims, _change_data, _empty_tensor, _make_external, _make_sparse),
    *(_change_opsets, _change_functions, _call_function, _shadow_operator),
    *(_mark, _change_description),
    *[change_field] * 16,
)


def change_bytes(rng: random.Random, content: bytes) -> bytes:
    """Change, insert, remove or repeat a few bytes, or cut the end off."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                data[at:at] = rng.randbytes(rng.randrange(1, 5))
            case 2:
                del data[at : at + rng.randrange(1, 9)]
            case 3:
                data[at:at] = data[at : at + rng.randrange(1, 40)]
            case _:
                del data[rng.randrange(len(data) // 2, len(data) + 1) :]
    return bytes(data)
