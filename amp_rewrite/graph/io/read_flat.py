"""Read an ONNX file into numbers, checked."""

from __future__ import annotations

import os

import onnx
from google.protobuf.message import DecodeError

from amp_rewrite.errors import AmpError, GraphError, LoadError
from amp_rewrite.graph.io.gate import admit
from amp_rewrite.graph.io.magic import describe
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.graph.proto.external import ExternalFiles
from amp_rewrite.graph.proto.flat_proto import FlatProto
from amp_rewrite.graph.proto.number_model import number_model
from amp_rewrite.graph.versions import check_versions

_PROTOBUF_LIMIT = 1 << 31


def read_flat(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto,
    base_dir: str | os.PathLike[str] | None = None,
) -> FlatProto:
    """Return the flat graph of a model; external data are looked for and measured, not read.

    Args:
        source: A path, the bytes of a file, or a ModelProto, which is referred to, not copied.
        base_dir: The folder that external data are relative to; a file has them in its own folder.

    Raises:
        LoadError: The source is not an ONNX model, or its external data are not usable.
        GraphError: It is one, but the graph is not valid.
    """
    folder = None if base_dir is None else path_text(base_dir, LoadError)
    if isinstance(source, onnx.ModelProto):
        return checked(source, ExternalFiles(folder), "model")
    if isinstance(source, bytes):
        return checked(_parse(source, "model"), ExternalFiles(folder), "model")
    path = path_text(source, LoadError)
    proto = _parse(_read_file(path), path)
    folder = folder or os.path.dirname(os.path.abspath(path))
    return checked(proto, ExternalFiles(folder, model=path), path)


def _read_file(path: str) -> bytes:
    try:
        if os.path.isdir(path):
            raise LoadError("a folder, not a model", where=path, remedy="name the .onnx file in it")
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
        raise LoadError("the file cannot be read", where=path, found=reason) from error


def _parse(content: bytes, where: str) -> onnx.ModelProto:
    """Parse a file's content.

    Raises:
        LoadError: It is no ONNX model; the message says what it looks like.
    """
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


def checked(proto: onnx.ModelProto, files: ExternalFiles, where: str) -> FlatProto:
    """Return the flat graph of a model; errors say which file they are about.

    Raises:
        LoadError: External data of the model are not usable.
        GraphError: The graph is not valid.
        StepError: It describes itself as a training step in another way than steps do.
    """
    try:
        check_versions(proto)
        flat = number_model(proto, files)
        admit(flat)
    except AmpError as error:
        raise type(error)(
            error.what,
            where=f"{where}: {error.where}" if error.where else where,
            found=error.found,
            expected=error.expected,
            remedy=error.remedy,
        ) from error
    except RecursionError as error:
        raise GraphError("the model is nested too deep", where=where) from error
    return flat
