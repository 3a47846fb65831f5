"""Parts that several protobuf messages have in common: doc strings, metadata, imports, lengths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir

from amp_rewrite.graph.io.typeproto import write_type
from amp_rewrite.graph.proto.messages import copy_text, text


def write_doc(proto: Any, source: Any, doc: str | None) -> None:
    """Write a doc string; an unchanged one as the bytes that it was."""
    if doc is None:
        return
    if text(source.doc_string) == doc and source.HasField("doc_string"):
        copy_text(proto, source, "doc_string")
    else:
        proto.doc_string = doc


def write_props(entries: Any, current: Mapping[str, str], source: Iterable[Any]) -> None:
    """Write metadata; unchanged ones exactly as they were, repeated keys included."""
    original = list(source)
    if {text(e.key): text(e.value) for e in original} == current:
        entries.extend(original)
        return
    for key, value in current.items():
        entries.add(key=key, value=value)


def write_opsets(
    entries: Any, current: Mapping[str, int], source: Sequence[onnx.OperatorSetIdProto]
) -> None:
    """Write the imports in their original order and spelling, then the new ones."""
    left = dict(current)
    for entry in source:
        domain = "" if entry.domain == "ai.onnx" else text(entry.domain)
        if domain in left:
            copied = entries.add(version=left.pop(domain))
            if entry.HasField("domain"):
                copied.domain = entry.domain
    for domain, version in left.items():
        entries.add(domain=domain, version=version)


def write_type_and_shape(proto: onnx.TypeProto, value: ir.TypeAndShape) -> None:
    """Fill the type of a type attribute."""
    if value.type is not None:
        write_type(proto, value.type, value.shape)  # pyright: ignore[reportArgumentType]


def to_bytes(value: str | bytes) -> bytes:
    """Return a string attribute as it is stored."""
    return value.encode("utf-8") if isinstance(value, str) else bytes(value)
