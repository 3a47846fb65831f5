"""AttributeProto -> onnx_ir.Attr; strings that are not UTF-8 stay bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import onnx
import onnx_ir as ir

from amp_rewrite.errors import GraphError
from amp_rewrite.graph.io.external import ExternalFiles
from amp_rewrite.graph.io.scope import Scope
from amp_rewrite.graph.io.tensorproto import check_sparse, read_tensor
from amp_rewrite.graph.io.typeproto import read_type, text

_Kind = ir.AttributeType
_PLAIN: dict[int, tuple[ir.AttributeType, str]] = {
    _Kind.INT.value: (_Kind.INT, "i"),
    _Kind.FLOAT.value: (_Kind.FLOAT, "f"),
    _Kind.INTS.value: (_Kind.INTS, "ints"),
    _Kind.FLOATS.value: (_Kind.FLOATS, "floats"),
}

GraphReader = Callable[[onnx.GraphProto, Scope, str], ir.Graph]


class AttributeReader:
    """Reads the attributes of nodes; graphs inside them through a callback."""

    def __init__(self, files: ExternalFiles, graph: GraphReader) -> None:
        """Take what nested values need.

        Args:
            files: Resolves external data.
            graph: Reads a nested graph, given the enclosing scope and the place.
        """
        self._files = files
        self._graph = graph
        self._nested = False
        self._values: dict[ir.AttributeType, Callable[[Any, Scope, str], Any]] = {
            _Kind.STRING: lambda p, s, w: _string(p.s),
            _Kind.STRINGS: lambda p, s, w: [_string(entry) for entry in p.strings],
            _Kind.TENSOR: lambda p, s, w: self._tensor(p.t, w),
            _Kind.TENSORS: lambda p, s, w: [self._tensor(entry, w) for entry in p.tensors],
            _Kind.GRAPH: lambda p, s, w: self._subgraph(p.g, s, w),
            _Kind.GRAPHS: lambda p, s, w: [self._subgraph(entry, s, w) for entry in p.graphs],
            _Kind.SPARSE_TENSOR: lambda p, s, w: self._sparse(p.sparse_tensor, w),
            _Kind.SPARSE_TENSORS: lambda p, s, w: [self._sparse(e, w) for e in p.sparse_tensors],
            _Kind.TYPE_PROTO: lambda p, s, w: ir.TypeAndShape(*read_type(p.tp, w)),
            _Kind.TYPE_PROTOS: lambda p, s, w: [
                ir.TypeAndShape(*read_type(entry, w)) for entry in p.type_protos
            ],
        }

    def read_all(self, protos: Iterable[onnx.AttributeProto], scope: Scope) -> tuple[ir.Attr, ...]:
        """Return a node's attributes in order.

        Raises:
            GraphError: One is malformed, or two have one name.
        """
        attributes = tuple([self.read(proto, scope) for proto in protos])
        if len(attributes) > 1 and len({a.name for a in attributes}) < len(attributes):
            raise GraphError("a node has two attributes of one name", where=scope.place())
        return attributes

    def read(self, proto: onnx.AttributeProto, scope: Scope) -> ir.Attr:
        """Return one attribute.

        Raises:
            GraphError: It is malformed.
            LoadError: Its external data are not usable.
        """
        number, name, doc = proto.type, proto.name, proto.doc_string
        if type(name) is not str:
            raise GraphError("an attribute's name is not UTF-8", where=scope.place())
        doc = text(doc) if doc else None
        if proto.ref_attr_name:
            kind = _Kind(number)
            return ir.RefAttr(name, text(proto.ref_attr_name), kind, doc_string=doc)
        plain = _PLAIN.get(number)
        if plain is not None:
            return ir.Attr(name, plain[0], getattr(proto, plain[1]), doc_string=doc)
        kind = _Kind(number)
        reader = self._values.get(kind)
        if reader is None:
            return ir.Attr(name, kind, None, doc_string=doc)
        place = f"{scope.place()}, attribute {name!r}"
        return ir.Attr(name, kind, reader(proto, scope, place), doc_string=doc)

    def take_nested(self) -> bool:
        """Return whether anything read since the last call holds a graph or external data.

        The message of such a node does not tell whether the node has changed.
        """
        nested, self._nested = self._nested, False
        return nested

    def _subgraph(self, proto: onnx.GraphProto, scope: Scope, place: str) -> ir.Graph:
        graph = self._graph(proto, scope, place)
        self._nested = True  # after the nodes inside have taken theirs
        return graph

    def _tensor(self, proto: onnx.TensorProto, place: str) -> ir.TensorProtocol:
        tensor = read_tensor(proto, self._files, place)
        self._nested = self._nested or isinstance(tensor, ir.ExternalTensor)
        return tensor

    def _sparse(self, proto: onnx.SparseTensorProto, place: str) -> onnx.SparseTensorProto:
        check_sparse(proto, self._files, place)
        return proto


def _string(value: bytes) -> str | bytes:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value
