"""Read an ONNX file into numbers, checked."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from amp_rewrite.base.name_patterns import did_you_mean
from amp_rewrite.errors import AmpError, GraphError, LoadError, placed, warn
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.io.gate import admit
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.graph.proto.external import ExternalFiles
from amp_rewrite.graph.proto.mend_nodes import mend_nodes
from amp_rewrite.graph.proto.number_model import number_model
from amp_rewrite.graph.proto.scope import EarlyUseError, OrderError
from amp_rewrite.graph.versions import check_versions

_PROTOBUF_LIMIT = 1 << 31


def read_flat(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto,
    base_dir: str | os.PathLike[str] | None = None,
) -> FlatGraph:
    """Return the flat graph of a model; external data are looked for and measured, not read.

    Raises:
        LoadError: The source is not an ONNX model, or its external data are not usable.
        GraphError: It is one, but the graph is not valid.
    """
    folder = None if base_dir is None else path_text(base_dir, LoadError)
    if isinstance(source, onnx.ModelProto):
        return checked(source, ExternalFiles(folder), "model", is_own=False)
    if isinstance(source, bytes):
        return checked(_parse(source, "model"), ExternalFiles(folder), "model")
    path = path_text(source, LoadError)
    proto = _parse(_read_file(path), path)
    folder = folder or os.path.dirname(os.path.abspath(path))
    return checked(proto, ExternalFiles(folder, model=path), path)


def _read_file(path: str) -> bytes:
    try:
        if os.path.isdir(path):
            first = min(Path(path).rglob("*.onnx"), default="a file *.onnx")
            raise LoadError("a folder, not a model", where=path, remedy=f"name a model: {first}")
        if os.path.getsize(path) >= _PROTOBUF_LIMIT:
            raise LoadError(
                "protobuf cannot read a file of 2 GiB or more",
                where=path,
                remedy="save the model with its weights as external data",
            )
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        beside = (str(file) for file in Path(path).parent.glob("*.onnx"))
        meant = did_you_mean(path, beside) if isinstance(error, FileNotFoundError) else None
        raise LoadError(
            "the file cannot be read", where=path, found=reason, remedy=meant
        ) from error


def _parse(content: bytes, where: str) -> onnx.ModelProto:
    if not content:
        raise LoadError("the file is empty", where=where, expected="an ONNX model")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        raise LoadError(
            "not an ONNX model",
            where=where,
            found=describe(content),
            expected="a protobuf ModelProto",
            remedy="export or copy the file again",
        ) from error
    if not proto.HasField("graph"):
        raise LoadError(
            "the file holds no graph", where=where, found=describe(content), expected="a model"
        )
    return proto


def checked(
    proto: onnx.ModelProto, files: ExternalFiles, where: str, *, is_own: bool = True
) -> FlatGraph:
    """Return the flat graph of a model; errors say which file they are about.

    Nodes that are out of order, or stand there twice, are mended with a warning: in the message if
    it `is_own`, else in a copy.
    """
    try:
        check_versions(proto)
        flat = _number_sorted(proto, files, where, is_own=is_own)
        admit(flat)
    except AmpError as error:
        kind = GraphError if isinstance(error, OrderError) else None
        raise placed(error, f"{where}: {error.where}" if error.where else where, kind) from error
    except RecursionError as error:
        raise GraphError("the model is nested too deep", where=where) from error
    return flat


def _number_sorted(
    proto: onnx.ModelProto, files: ExternalFiles, where: str, *, is_own: bool
) -> FlatGraph:
    try:
        return number_model(proto, files)
    except OrderError:
        if not is_own:
            copied = onnx.ModelProto()
            copied.CopyFrom(proto)
            proto = copied
        mended = mend_nodes(proto)
        try:
            flat = number_model(proto, files)
        except EarlyUseError as error:
            what = "the graph has a cycle"
            raise GraphError(what, where=error.where, found=error.what, remedy="break it") from None
    flat.mended = mended
    if mended.words():
        warn(f"{where}: corrected: {mended.words()}")
    return flat


_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"PK\x03\x04", "a zip archive, such as a PyTorch checkpoint"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"\x89HDF", "an HDF5 file, such as a Keras model"),
    (0, b"GGUF", "a GGUF model"),
    (0, b"\x80\x02", "a Python pickle"),
    (0, b"\x80\x04", "a Python pickle"),
    (0, b"version https://git-lfs", "a Git LFS pointer: fetch the file with git lfs pull"),
    (0, b"<!DOCTYPE", "an HTML page"),
    (0, b"<html", "an HTML page"),
    (4, b"ORTM", "an ONNX Runtime .ort model"),
    (4, b"TFL3", "a TensorFlow Lite model"),
    (8, b'{"', "a safetensors file"),
)
_IR_VERSION_TAG = 0x08  # how nearly every ModelProto begins
_SAMPLE = 512


def describe(content: bytes) -> str:
    """Return a few words on what the beginning of a file looks like."""
    for offset, mark, words in _MAGIC:
        if content[offset : offset + len(mark)] == mark:
            return words
    if _is_text(content[:_SAMPLE]):
        return "a text file"
    if content[0] == _IR_VERSION_TAG:
        return f"a model that is truncated, damaged or nested too deeply, {len(content)} bytes"
    return f"{len(content)} bytes that are not a protobuf message of ONNX"


def _is_text(sample: bytes) -> bool:
    try:
        decoded = sample.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return all(char.isprintable() or char in "\r\n\t" for char in decoded)
