"""Read an ONNX model into an onnx_ir.Model that the caller may change."""

from __future__ import annotations

import os

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from amp_rewrite.errors import AmpError, GraphError, LoadError
from amp_rewrite.graph import schemas
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.magic import describe
from amp_rewrite.graph.origin import paused_gc
from amp_rewrite.graph.read import opset_imports, read_model

Source = str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model

OLDEST_IR = 3
OLDEST_OPSET = 7
_PROTOBUF_LIMIT = 1 << 31


def load(source: Source, *, base_dir: str | os.PathLike[str] | None = None) -> ir.Model:
    """Return a fresh, checked model; `source` is never changed.

    External data stay in their file: they are looked for and measured, not read. A ModelProto is
    referred to, not copied, so change it only when the model is no longer needed.

    Args:
        source: A path, the bytes of a file, a ModelProto or an onnx_ir Model.
        base_dir: The folder that external data of a ModelProto or of bytes are relative to; a file
            has them in its own folder.

    Raises:
        LoadError: The source is not an ONNX model, or its external data are not usable.
        GraphError: It is one, but the graph is not valid.
    """
    with paused_gc():
        if isinstance(source, ir.Model):
            return clone(source)
        folder = None if base_dir is None else os.fspath(base_dir)
        if isinstance(source, onnx.ModelProto):
            return _build(source, folder, "model")
        if isinstance(source, bytes):
            return _build(_parse(source, "model"), folder, "model")
        path = os.fspath(source)
        proto = _parse(_read_file(path), path)
        return _build(proto, folder or os.path.dirname(os.path.abspath(path)), path)


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


def _build(proto: onnx.ModelProto, folder: str | None, where: str) -> ir.Model:
    """Check the versions and build the model; errors say which file they are about."""
    try:
        _check_versions(proto)
        return read_model(proto, folder)
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


def _check_versions(proto: onnx.ModelProto) -> None:
    if not proto.HasField("graph"):
        raise LoadError("the model holds no graph", expected="a graph")
    if not OLDEST_IR <= proto.ir_version <= onnx.IR_VERSION:
        newer = proto.ir_version > onnx.IR_VERSION
        raise LoadError(
            "unknown IR version" if newer else "the IR version is missing or too old",
            found=proto.ir_version,
            expected=f"{OLDEST_IR} to {onnx.IR_VERSION} (onnx {onnx.__version__})",
            remedy="install a newer onnx" if newer else "export the model again",
        )
    if not proto.opset_import:
        raise GraphError("the model imports no opset", expected="at least one opset_import")
    for domain, version in opset_imports(proto.opset_import, "model").items():
        _check_opset(domain, version)
    for function in proto.functions:
        for domain, version in opset_imports(function.opset_import, function.name).items():
            _check_opset(domain, version)


def _check_opset(domain: str, version: int) -> None:
    name = domain or "ai.onnx"
    newest = None
    if domain == "":
        newest = onnx.defs.onnx_opset_version()
    elif domain.startswith("ai.onnx."):
        newest = schemas.newest_opset(domain)
    if newest is not None and version > newest:
        raise GraphError(
            f"unknown opset of {name}",
            found=version,
            expected=f"at most {newest}, the newest that onnx {onnx.__version__} knows",
            remedy="install a newer onnx, or convert with onnx.version_converter",
        )
    if version < (OLDEST_OPSET if domain == "" else 1):
        raise GraphError(
            f"the opset of {name} is too old",
            found=version,
            expected=f"at least {OLDEST_OPSET if domain == '' else 1}",
            remedy="convert the model with onnx.version_converter",
        )
