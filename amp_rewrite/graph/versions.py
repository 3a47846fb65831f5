"""Which IR versions and opsets can be loaded."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from amp_rewrite.errors import GraphError, LoadError
from amp_rewrite.graph import schemas

OLDEST_IR = 3
_NEWEST = 2**31 - 1  # what onnx takes as a version of any domain
FIRST_OPSET_WITH_WHERE = 9
OPSET_OF_CASTS = 13
"""The opset to import for a model that uses no operator of ai.onnx: Cast knows bfloat16 since."""
OLDEST_REWRITABLE_OPSET = 7
"""Older models load and come back unchanged: their Cast and broadcasting are other operators."""


def opset_imports(entries: Iterable[onnx.OperatorSetIdProto], where: str) -> dict[str, int]:
    """Return domain -> version, the domain "ai.onnx" spelled ""."""
    version_of: dict[str, int] = {}
    for entry in entries:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if type(domain) is not str:
            raise GraphError("a domain is not UTF-8", where=where, found=repr(domain))
        if version_of.setdefault(domain, entry.version) != entry.version:
            raise GraphError(
                f"domain {domain or 'ai.onnx'!r} is imported twice",
                where=where,
                found=f"versions {version_of[domain]} and {entry.version}",
                expected="one version",
            )
    return version_of


def check_versions(proto: onnx.ModelProto) -> None:
    """Refuse versions that the installed onnx does not know, or that are too old."""
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
    newest = _NEWEST
    if domain == "":
        newest = onnx.defs.onnx_opset_version()
    elif domain.startswith("ai.onnx."):
        newest = schemas.newest_opset(domain) or _NEWEST
    if not 1 <= version <= newest:
        raise GraphError(
            f"unknown opset of {domain or 'ai.onnx'}",
            found=version,
            expected=f"1 to {newest}, the newest that onnx {onnx.__version__} knows",
            remedy="install a newer onnx, or convert with onnx.version_converter",
        )
