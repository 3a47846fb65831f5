"""Texts, metadata, types and shapes as protobuf messages have them."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import onnx

from amp_rewrite.errors import GraphError
from amp_rewrite.graph import elements

_MAX_DEPTH = 64
_CONTAINERS = {"sequence_type": "seq", "optional_type": "optional"}


def text(value: str | bytes) -> str:
    """Return a text field; bytes that are not UTF-8 (protobuf hands out bytes) are replaced."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def props(entries: Iterable[onnx.StringStringEntryProto]) -> dict[str, str]:
    """Return metadata entries as a dictionary."""
    return {text(entry.key): text(entry.value) for entry in entries}


@functools.lru_cache(1024)
def varint(number: int) -> bytes:
    """Return a number as protobuf encodes it."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def check_element(number: int, where: str) -> None:
    """Refuse a number that is not an element type."""
    if number not in elements.NUMBERS:
        raise GraphError(
            "unknown element type", where=where, found=number, expected="a TensorProto.DataType"
        )


def type_string(proto: onnx.TypeProto, where: str, depth: int = 0) -> str | None:
    """Return the type string of a TypeProto, or None for what has none: maps, opaque types."""
    if depth > _MAX_DEPTH:
        raise GraphError("the type is nested too deep", where=where, expected=f"<= {_MAX_DEPTH}")
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        number = proto.tensor_type.elem_type
        check_element(number, where)
        return None if number == onnx.TensorProto.UNDEFINED else elements.tensor(number)
    if kind not in _CONTAINERS:
        return None
    inner = type_string(getattr(proto, kind).elem_type, where, depth + 1)
    return None if inner is None else f"{_CONTAINERS[kind]}({inner})"


def shape_of(info: onnx.ValueInfoProto) -> list[int | None] | None:
    """Return the shape that a declaration records, None for a dimension that is not a number."""
    leaf = _leaf(info.type)
    if leaf is None or not leaf.HasField("shape"):
        return None
    is_number = [d.HasField("dim_value") and d.dim_value >= 0 for d in leaf.shape.dim]
    return [d.dim_value if k else None for d, k in zip(leaf.shape.dim, is_number, strict=True)]


def declare(
    info: onnx.ValueInfoProto,
    sources: Iterable[onnx.ValueInfoProto],
    element: int | None,
    *,
    notes: bool,
) -> None:
    """Fill a declaration from those that a file has of the same value.

    Later sources count more than earlier ones, `element` more than both; the name stays. A
    dimension below zero, which some exporters write, becomes an unknown one.
    """
    metadata: dict[str, str] = {}
    for source in sources:
        if source.type.WhichOneof("value") is not None:
            info.type.CopyFrom(source.type)
        if notes and source.HasField("doc_string"):
            info.doc_string = text(source.doc_string)
        if notes:
            metadata |= props(source.metadata_props)
    if not info.doc_string:
        info.ClearField("doc_string")
    for key, entry in metadata.items():
        info.metadata_props.add(key=key, value=entry)
    leaf = _leaf(info.type)
    if leaf is not None and element is not None:
        leaf.elem_type = element
    for dim in () if leaf is None else leaf.shape.dim:
        if dim.HasField("dim_value") and dim.dim_value < 0:
            dim.ClearField("dim_value")


def graphs_of(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Return the graphs among the attributes of a node."""
    return [a.g for a in node.attribute if a.HasField("g")]


def _leaf(proto: onnx.TypeProto) -> Any:
    inner: Any = proto
    while inner.WhichOneof("value") in _CONTAINERS:
        inner = getattr(inner, inner.WhichOneof("value")).elem_type
    return inner.tensor_type if inner.WhichOneof("value") == "tensor_type" else None
