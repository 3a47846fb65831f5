"""A model in parts, to be written or shown to onnx: its messages, and the data of its tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx
from onnx import TensorProto
from onnx.helper import make_tensor_value_info

from amp_rewrite.graph.elements import bits
from amp_rewrite.graph.io.model_files import INLINE_LIMIT, Parts, Place, Weight, refer, source_file
from amp_rewrite.graph.proto.external import ExternalFiles
from amp_rewrite.graph.proto.messages import varint
from amp_rewrite.graph.proto.stored import check_tensor, tensors_in, with_data, without_data
from amp_rewrite.graph.streams import Stream

_WORTH_MOVING = 1 << 10
"""Bytes from which on a tensor goes to a data file where the model file cannot hold all."""

_READ = 1 << 8
"""Elements of the largest initializers that onnx sees: shapes, axes and scales."""

_GRAPH = varint(onnx.ModelProto.DESCRIPTOR.fields_by_name["graph"].number << 3 | 2)

_ELSEWHERE = b"location"
"""The bytes that a message has if a tensor refers to data elsewhere."""

Messages = tuple[onnx.ModelProto, ExternalFiles]
"""A model, and where the data are that its tensors do not have in their messages."""

_Key = tuple[str, ...]


class Content:
    """A model in parts; the messages that it is made of are not changed.

    Attributes:
        n_nodes: How many nodes the main graph has.
        streams: The data of tensors that are not in their messages, by where they are.
        external: Those that go to a data file.
        total: The bytes of all data.
    """

    def __init__(
        self, proto: onnx.ModelProto, files: ExternalFiles, *, owned: bool = False
    ) -> None:
        """Look up where data are; nothing is read but what is in memory and in attributes.

        A model that is `owned` is not copied, and loses its initializers.
        """
        self._initializers = [(tensor, _key(tensor)) for tensor in proto.graph.initializer]
        self.n_nodes, self._graph = len(proto.graph.node), proto.graph
        if not owned:
            self._graph = onnx.GraphProto()
            self._graph.CopyFrom(proto.graph)
        del self._graph.initializer[:]
        self._head = _without_graph(proto)
        self._body = self._graph.SerializeToString(deterministic=True)
        self._inside = list[tuple[TensorProto, _Key]]()
        if _ELSEWHERE in self._body or _ELSEWHERE in self._head.SerializeToString():
            bodies = (self._graph, *self._head.functions)
            inside = (tensor for body in bodies for tensor in tensors_in(body.node))
            self._inside += ((tensor, key) for tensor in inside if (key := _key(tensor)))
        self.streams: dict[_Key, Stream] = {}
        for tensor, key in (*self._initializers, *self._inside):
            if key and key not in self.streams:
                self.streams[key] = check_tensor(tensor, files, "the model").stored
        inline = sum(tensor.ByteSize() for tensor, key in self._initializers if not key)
        self.total = inline + sum(stream.nbytes for stream in self.streams.values())
        filed = {key: s for key, s in self.streams.items() if source_file(s) is not None}
        in_memory = self.total - sum(stream.nbytes for stream in filed.values())
        moves = in_memory + len(self._body) > INLINE_LIMIT
        self.external = {
            key: stream
            for key, stream in self.streams.items()
            if key in filed or (moves and stream.nbytes >= _WORTH_MOVING)
        }
        for tensor, key in self._inside:
            if key not in self.external:
                tensor.CopyFrom(with_data(tensor, self.streams[key]))
        if self._inside:
            self._body = self._graph.SerializeToString(deterministic=True)

    @property
    def refers(self) -> bool:
        """Whether tensors in attributes go to a data file, which onnx's checker would look for."""
        return not self.external.keys().isdisjoint(key for _, key in self._inside)

    def slim(self) -> bytes:
        """Return the model serialized, with large initializers as graph inputs; no file is read."""
        graph, inputs = onnx.GraphProto(), {info.name for info in self._graph.input}
        for tensor, key in self._initializers:
            dims, stream = list(tensor.dims), self.streams.get(key)
            if math.prod(dims) <= _READ and source_file(stream) is None:
                graph.initializer.append(tensor if stream is None else with_data(tensor, stream))
            elif tensor.name not in inputs:
                graph.input.append(make_tensor_value_info(tensor.name, tensor.data_type, dims))
        body = self._body + graph.SerializeToString()
        return self._head.SerializeToString() + _GRAPH + varint(len(body)) + body

    def parts(self, places: Sequence[Place]) -> Parts:
        """Return the model file, given the places of what is external; can be called once."""
        place_of, inline = dict(zip(self.external, places, strict=True)), list[Weight]()
        for tensor, key in self._inside:
            if key in place_of:
                tensor.CopyFrom(_referring(tensor, place_of[key]))
        for tensor, key in self._initializers:
            stream = self.streams.get(key)
            if key in place_of:
                self._graph.initializer.append(_referring(tensor, place_of[key]))
            else:
                inline.append(Weight(tensor if stream is None else without_data(tensor), stream))
        if place_of:
            self._body = self._graph.SerializeToString(deterministic=True)
        return Parts(self._head.SerializeToString(deterministic=True), self._body, inline)


def _without_graph(proto: onnx.ModelProto) -> onnx.ModelProto:
    head = onnx.ModelProto()
    for field, value in proto.ListFields():
        if isinstance(value, int | str):
            setattr(head, field.name, value)
        elif field.name != "graph":
            getattr(head, field.name).extend(value)
    return head


def _key(tensor: TensorProto) -> _Key:
    """Return what tensors share if their data are at one place; nothing if they are in there."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return ()
    size = math.prod(tensor.dims) * bits(tensor.data_type)  # nobody has to record a length
    return (str(size), *(f"{entry.key}={entry.value}" for entry in tensor.external_data))


def _referring(tensor: TensorProto, place: Place) -> TensorProto:
    message = without_data(tensor)
    refer(message, place)
    return message
