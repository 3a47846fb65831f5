"""The flat graph of a ModelProto: its numbers lead to messages, which are not copied."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import onnx
from onnx import AttributeProto
from onnx.helper import make_tensor_value_info

from amp_rewrite.graph.flat import NUMBERS_OF_CONSTANT, Attribute, FlatGraph, Tensor
from amp_rewrite.graph.proto.external import ExternalFiles
from amp_rewrite.graph.proto.mend_nodes import MendedNodes
from amp_rewrite.graph.proto.messages import shape_of, text, type_string
from amp_rewrite.graph.proto.stored import StoredTensor, check_tensor
from amp_rewrite.graph.streams import Stream

PLAIN: Mapping[int, str] = {
    AttributeProto.INT: "i",
    AttributeProto.FLOAT: "f",
    AttributeProto.INTS: "ints",
    AttributeProto.FLOATS: "floats",
}
"""Type of an attribute -> the field that has its value; it needs no check."""


@dataclass(slots=True)
class Declared:
    """The messages that declare a value.

    Attributes:
        input: Its entry among the inputs of its graph, or None.
        output: Its first entry among the outputs, or None.
        again: Its other entries among the outputs.
        info: Its value_info, or None.
        latest: The entry whose type and shape count: the last one of an output, if there is one.
            None if no entry has them; of an initializer, value_info does not count.
    """

    input: onnx.ValueInfoProto | None = None
    output: onnx.ValueInfoProto | None = None
    again: tuple[onnx.ValueInfoProto, ...] = ()
    info: onnx.ValueInfoProto | None = None
    latest: onnx.ValueInfoProto | None = None


@dataclass
class FlatProto(FlatGraph):
    """The flat graph of a ModelProto, or of one of its functions; the numbers lead to messages.

    Attributes:
        proto: The model.
        files: The data files beside it.
        nodes: By number, the node.
        graphs: By number, the graph; of a function, the function.
        declared: Value -> the messages that declare it.
        tensors: Initializer -> its tensor, of dense ones.
        sparse: Initializer -> its message, of sparse ones.
        unused: Graph -> entries of value_info that name nothing in it.
        given: The nodes that had no name and were given one.
        external_attributes: Whether a tensor in an attribute of a node has its data elsewhere.
        mended: What was done to the nodes when the model was read; `proto` is the mended one.
        infer: Finds the shapes that the file does not record, or None.
        lengths: Lengths of free dimensions that the user says, by the names that inputs give them.
        objects: The objects of onnx_ir that were made of it and are shared, if they were.
        paintings: What was painted of it (rewriting/plan/paint_context.py), if anything was.
    """

    proto: onnx.ModelProto = field(kw_only=True)
    files: ExternalFiles = field(kw_only=True)
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    graphs: list[onnx.GraphProto | onnx.FunctionProto] = field(
        default_factory=list["onnx.GraphProto | onnx.FunctionProto"]
    )
    declared: dict[int, Declared] = field(default_factory=dict[int, Declared])
    tensors: dict[int, StoredTensor] = field(default_factory=dict[int, StoredTensor])
    sparse: dict[int, onnx.SparseTensorProto] = field(
        default_factory=dict[int, onnx.SparseTensorProto]
    )
    unused: dict[int, list[onnx.ValueInfoProto]] = field(
        default_factory=dict[int, "list[onnx.ValueInfoProto]"]
    )
    given: set[int] = field(default_factory=set[int])
    external_attributes: bool = False
    mended: MendedNodes = field(default_factory=MendedNodes)
    infer: Callable[[FlatProto], Mapping[int, Sequence[int | None]]] | None = None
    lengths: Mapping[str, int] = field(default_factory=dict[str, int])
    objects: object = field(default=None, repr=False, compare=False)
    paintings: object = field(default=None, repr=False, compare=False)
    _held: dict[int, Tensor | None] = field(
        default_factory=dict[int, "Tensor | None"], repr=False, compare=False
    )

    def attributes(self, node: int) -> Mapping[str, Attribute]:
        """Return the attributes of a node, in order."""
        return {a.name: plain(a, self.files) for a in self.nodes[node].attribute}

    def signature(self, node: int) -> tuple[tuple[str, int, bool], ...]:
        """Return the name and type of each attribute, and whether it is a reference."""
        attributes = self.nodes[node].attribute
        return (
            tuple([(a.name, a.type, bool(a.ref_attr_name)) for a in attributes])
            if attributes
            else ()
        )

    def spelled_attributes(self, node: int) -> Hashable:
        """Return something that nodes share only if their attributes are equal."""
        attributes = self.nodes[node].attribute
        return (
            tuple([a.SerializeToString(deterministic=True) for a in attributes])
            if attributes
            else ()
        )

    def shape(self, value: int) -> Sequence[int | None] | None:
        """Return the shape of a value: what the file records, or what inference finds.

        Where the user says how long dimensions are, what inference makes of that counts.
        """
        if self.lengths and value in self.inferred_shapes:
            return self.inferred_shapes[value]
        recorded = self.recorded_shape(value)
        return self.inferred_shapes.get(value) if recorded is None else recorded

    @cached_property
    def inferred_shapes(self) -> Mapping[int, Sequence[int | None]]:
        """By value, what inference finds; it runs when the first shape is missing.

        The body of a function has none: it is called with any shapes.
        """
        return {} if self.infer is None else self.infer(self)

    def say_lengths(self, lengths: Mapping[str, int]) -> None:
        """Let free dimensions have lengths from now on; shapes are inferred with them."""
        if lengths != self.lengths:
            self.lengths = lengths
            vars(self).pop("inferred_shapes", None)

    @property
    def free_dimensions(self) -> frozenset[str]:
        """The names that inputs of the main graph give to free dimensions."""
        inputs = (self.declared[v].input for v in self.main.inputs if v in self.declared)
        dims = (d for i in inputs if i is not None for d in i.type.tensor_type.shape.dim)
        return frozenset(dim.dim_param for dim in dims if dim.dim_param)

    def recorded_shape(self, value: int) -> Sequence[int | None] | None:
        """Return the recorded shape of a value, None for a free dimension; None if unknown."""
        entry = self.declared.get(value)
        if entry is not None and entry.latest is not None:
            return shape_of(entry.latest)
        held = self.tensors.get(value) or self.sparse.get(value)
        return None if held is None else held.dims

    def initializer(self, value: int) -> Tensor | None:
        """Return the dense tensor of an initializer; None for a sparse one, or any other value."""
        return self.tensors.get(value)

    def keep_names(self, names: Sequence[str]) -> None:
        """Let nodes that had no name have other given ones: `names` has one for each node."""
        for node in self.given:
            self.node_names[node] = names[node] or self.node_names[node]

    def messages_of(self, value: int) -> list[onnx.ValueInfoProto]:
        """Return what declares a value; of what they say twice, the last one counts.

        An initializer that is not an input declares itself, after its value_info.
        """
        entry = self.declared.get(value, Declared())
        first, held = entry.input or entry.info, list[onnx.ValueInfoProto]()
        if entry.input is None and value in self.tensors:
            held = [make_tensor_value_info("", self.tensors[value].dtype, self.tensors[value].dims)]
        elif entry.input is None and value in self.sparse:
            sparse = self.sparse[value]
            held = [make_tensor_value_info("", sparse.values.data_type, sparse.dims)]
        outputs = () if entry.output is None else (entry.output, *entry.again)
        return [*(() if first is None else (first,)), *held, *outputs]

    def elements(self, tensor: Tensor) -> Stream:
        """Return the elements of one of the model's tensors; nothing is read yet."""
        return cast("StoredTensor", tensor).stream

    def held(self, node: int) -> Tensor | None:
        """Return the dense tensor of numbers that a Constant node holds; None for any other."""
        if self.called(node)[:2] != ("", "Constant"):
            return None
        if node not in self._held:  # asked for ten times while a model is painted
            self._held[node] = self._read_held(node)
        return self._held[node]

    def _read_held(self, node: int) -> Tensor | None:
        for name, attribute in self.attributes(node).items():
            if attribute.reference:
                return None
            if name == "value":
                return attribute.value
            if name in NUMBERS_OF_CONSTANT:
                return StoredTensor.of(np.array(attribute.value, NUMBERS_OF_CONSTANT[name]))
        return None


def plain(proto: onnx.AttributeProto, files: ExternalFiles) -> Attribute:
    """Return an attribute, which was checked, as flat graphs have it."""
    value: Any = None
    kind = proto.type
    if proto.ref_attr_name:
        return Attribute(kind, None, text(proto.ref_attr_name))
    if kind in PLAIN:
        value = getattr(proto, PLAIN[kind])
        value = list(value) if kind in (AttributeProto.INTS, AttributeProto.FLOATS) else value
    elif kind == AttributeProto.STRING:
        value = string(proto.s)
    elif kind == AttributeProto.STRINGS:
        value = [string(entry) for entry in proto.strings]
    elif kind == AttributeProto.TENSOR:
        value = check_tensor(proto.t, files, f"attribute {proto.name!r}")
    elif kind == AttributeProto.TYPE_PROTO:
        value = type_string(proto.tp, f"attribute {proto.name!r}")
    return Attribute(kind, value)


def string(value: bytes) -> str | bytes:
    """Return the value of a string attribute; bytes that are not UTF-8 stay bytes."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value
