"""Checkpoints: every state tensor by name in one safetensors file, written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.errors import CheckpointError, SaveError
from amp_rewrite.graph.io.atomic import Replacement, check_target, writing
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.graph.metadata_keys import CHECKPOINT_KEY

Array = np.ndarray[Any, Any]
Path = str | os.PathLike[str]

_VERSION = 1
_ALIGNMENT = 8
_TAGS = {
    "float64": "F64", "float32": "F32", "float16": "F16", BFLOAT16.name: "BF16",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
"""Element type -> its name in the format (https://github.com/huggingface/safetensors#format)."""


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a checkpoint file by state name, and the progress that is stored with them."""

    tensors: dict[str, Array]
    progress: dict[str, Any]


def check_checkpoint_name(path: object) -> None:
    """Refuse the name of a model, which a checkpoint would overwrite."""
    if isinstance(path, str | os.PathLike) and str(os.fspath(path)).lower().endswith(".onnx"):
        raise SaveError(
            "the name ends as a model's, which export writes",
            where=path,
            expected="the name of a safetensors file",
            remedy="name it .safetensors",
        )


def write_checkpoint(
    path: Path, tensors: Mapping[str, Array], roles: Mapping[str, str], progress: Mapping[str, Any]
) -> None:
    """Write a checkpoint, one tensor at a time; an existing file is replaced in one step.

    `progress` is anything that JSON can hold.
    """
    target = os.path.abspath(path_text(path, SaveError))
    header = _header(tensors, _note(roles, progress, target))
    folder, name = os.path.split(target)
    check_target(folder, name)
    with writing("checkpoint", target), Replacement(folder, name) as replacement:
        replacement.file.write(len(header).to_bytes(8, "little") + header)
        for array in tensors.values():
            replacement.file.write(np.ascontiguousarray(array).tobytes())
        replacement.commit(name)


def _note(roles: Mapping[str, str], progress: Mapping[str, Any], where: str) -> str:
    """Return what is stored besides the tensors, as JSON."""
    try:
        return json.dumps({"version": _VERSION, "roles": dict(roles), "progress": dict(progress)})
    except (TypeError, ValueError, RecursionError) as error:
        raise SaveError(
            "JSON cannot hold the progress",
            where=where,
            found=error,
            expected="a dictionary such as {'epoch': 3}, of texts, numbers, lists and dictionaries",
            remedy="convert arrays and numbers of numpy with .tolist()",
        ) from error


def _header(tensors: Mapping[str, Array], note: str) -> bytes:
    entries: dict[str, Any] = {"__metadata__": {CHECKPOINT_KEY: note}}
    start = 0
    for name, array in tensors.items():
        end = start + array.nbytes
        tag = _TAGS[array.dtype.name]
        entries[name] = {"dtype": tag, "shape": array.shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(entries).encode()
    return text + b" " * (-len(text) % _ALIGNMENT)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint."""
    where = path_text(path, CheckpointError)
    try:
        with safe_open(where, framework="np") as file:
            note = (file.metadata() or {}).get(CHECKPOINT_KEY)
            progress = _progress(note, where)
            tensors = {name: _tensor(file, name, where) for name in file.keys()}  # noqa: SIM118 not a mapping
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            "the checkpoint cannot be read",
            where=where,
            found=error.strerror if isinstance(error, OSError) and error.strerror else error,
            expected="a safetensors file that TrainingSession.save wrote",
        ) from error
    return Checkpoint(tensors, progress)


def _tensor(file: safe_open, name: str, where: str) -> Array:
    dtype = file.get_slice(name).get_dtype()
    if dtype not in _TAGS.values():
        raise CheckpointError(
            f"tensor {name!r} of the checkpoint has a type that no state has",
            where=where,
            found=dtype,
            expected=" or ".join(_TAGS.values()),
            remedy="restore a file that TrainingSession.save wrote",
        )
    return np.array(file.get_tensor(name))


def _progress(note: str | None, where: str) -> dict[str, Any]:
    try:
        content = json.loads(note or "")
        progress = content["progress"] if content["version"] == _VERSION else None
    except (ValueError, KeyError, TypeError, RecursionError):
        progress = None
    if not isinstance(progress, dict):
        raise CheckpointError(
            "not a checkpoint of this package, or of a later version of it",
            where=where,
            found=f"metadata {CHECKPOINT_KEY!r}: {note}"[:100],
            expected=f"version {_VERSION}",
            remedy="restore a file that TrainingSession.save wrote",
        )
    return progress  # pyright: ignore[reportUnknownVariableType] keys of JSON are texts
