"""AttributeProto, which was checked before, -> onnx_ir.Attr; strings not in UTF-8 stay bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import onnx
import onnx_ir as ir

from amp_rewrite.graph.io.tensorproto import read_tensor
from amp_rewrite.graph.io.typeproto import read_type
from amp_rewrite.graph.proto.external import ExternalFiles
from amp_rewrite.graph.proto.flat_proto import string
from amp_rewrite.graph.proto.messages import text

_Kind = ir.AttributeType
_PLAIN: dict[int, tuple[ir.AttributeType, str]] = {
    _Kind.INT.value: (_Kind.INT, "i"),
    _Kind.FLOAT.value: (_Kind.FLOAT, "f"),
    _Kind.INTS.value: (_Kind.INTS, "ints"),
    _Kind.FLOATS.value: (_Kind.FLOATS, "floats"),
}


class AttributeReader:
    """Reads the attributes of nodes; the graphs inside them come from elsewhere, one by one."""

    def __init__(self, files: ExternalFiles, graphs: Iterator[ir.Graph]) -> None:
        """Take what nested values need.

        Args:
            files: Resolves external data.
            graphs: The graphs inside the node, in the order of its attributes.
        """
        self._files = files
        self._graphs = graphs
        self.nested = False
        """Whether anything read holds a graph, or a tensor whose data are not in the message: then
        the message of the node does not tell whether the node has changed."""
        self._values: dict[ir.AttributeType, Callable[[Any, str], Any]] = {
            _Kind.STRING: lambda p, w: string(p.s),
            _Kind.STRINGS: lambda p, w: [string(entry) for entry in p.strings],
            _Kind.TENSOR: lambda p, w: self._tensor(p.t, w),
            _Kind.TENSORS: lambda p, w: [self._tensor(entry, w) for entry in p.tensors],
            _Kind.GRAPH: lambda p, w: self._subgraph(),
            _Kind.GRAPHS: lambda p, w: [self._subgraph() for _ in p.graphs],
            _Kind.SPARSE_TENSOR: lambda p, w: p.sparse_tensor,
            _Kind.SPARSE_TENSORS: lambda p, w: list(p.sparse_tensors),
            _Kind.TYPE_PROTO: lambda p, w: ir.TypeAndShape(*read_type(p.tp, w)),
            _Kind.TYPE_PROTOS: lambda p, w: [
                ir.TypeAndShape(*read_type(entry, w)) for entry in p.type_protos
            ],
        }

    def read(self, proto: onnx.AttributeProto) -> ir.Attr:
        """Return one attribute."""
        name, doc = proto.name, text(proto.doc_string) if proto.doc_string else None
        if proto.ref_attr_name:
            kind = _Kind(proto.type)
            return ir.RefAttr(name, text(proto.ref_attr_name), kind, doc_string=doc)
        plain = _PLAIN.get(proto.type)
        if plain is not None:
            return ir.Attr(name, plain[0], getattr(proto, plain[1]), doc_string=doc)
        kind = _Kind(proto.type)
        reader = self._values.get(kind)
        value = None if reader is None else reader(proto, f"attribute {name!r}")
        return ir.Attr(name, kind, value, doc_string=doc)

    def _subgraph(self) -> ir.Graph:
        self.nested = True
        return next(self._graphs)

    def _tensor(self, proto: onnx.TensorProto, place: str) -> ir.TensorProtocol:
        self.nested = self.nested or proto.data_location == onnx.TensorProto.EXTERNAL
        return read_tensor(proto, self._files, place)
