"""Checkpoints: every state tensor by name in one safetensors file, written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
from safetensors import SafetensorError, safe_open

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.errors import CheckpointError, SaveError
from amp_rewrite.graph.io.atomic import Replacement, check_target, writing
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.graph.metadata_keys import CHECKPOINT_KEY
from amp_rewrite.training.optimizers.slots import Slot

Array = np.ndarray[Any, Any]
Path = str | os.PathLike[str]

FROZEN = "frozen"
"""The role in a checkpoint of a weight that the step does not train."""

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
    """The content of a checkpoint file.

    Attributes:
        tensors: State name -> array.
        progress: What the caller stored with it.
        slots: State name -> slot, of those that are known.
    """

    tensors: dict[str, Array]
    progress: dict[str, Any]
    slots: dict[str, Slot] = field(default_factory=dict[str, Slot])


_OTHERS = {
    **dict.fromkeys((".pt", ".pth", ".bin"), "PyTorch's, whose files torch.load reads"),
    ".onnx": "a model's, which export writes",
    **dict.fromkeys((".npz", ".npy"), "numpy's"),
    **dict.fromkeys((".h5", ".keras"), "Keras's"),
    **dict.fromkeys((".pkl", ".pickle"), "pickle's"),
}
"""Ends of names that say what a checkpoint is not."""


def check_checkpoint_name(path: object) -> None:
    """Refuse a name that says that a checkpoint is a file of another kind."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    suffix = os.path.splitext(str(name))[1].lower()
    if suffix in _OTHERS:
        raise SaveError(
            f"the name ends as {_OTHERS[suffix]}",
            where=name,
            found=suffix,
            expected="the name of a safetensors file",
            remedy="name it .safetensors",
        )


def write_checkpoint(
    path: Path,
    tensors: Mapping[str, Array],
    roles: Mapping[str, str],
    progress: Mapping[str, Any],
    slots: Mapping[str, Slot] | None = None,
) -> None:
    """Write a checkpoint, one tensor at a time; an existing file is replaced in one step.

    `progress` is anything that JSON can hold.

    Raises:
        SaveError: It cannot be written, or JSON cannot hold the progress; an existing file stays as
            it was.
    """
    target = os.path.abspath(path_text(path, SaveError))
    note = _note(roles, progress, {} if slots is None else slots, target)
    folder, name = os.path.split(target)
    check_target(folder, name)
    with writing("checkpoint", target), Replacement(folder, name) as replacement:
        write_tensors(replacement.file, tensors, {CHECKPOINT_KEY: note})
        replacement.commit(name)


def _note(
    roles: Mapping[str, str], progress: Mapping[str, Any], slots: Mapping[str, Slot], where: str
) -> str:
    """Return what is stored besides the tensors, as JSON."""
    if not isinstance(progress, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise SaveError(
            "the progress must be a mapping",
            where=where,
            found=f"an object of type {type(progress).__name__}",
            remedy="pass a dictionary such as {'epoch': 3}",
        )
    try:
        told = {"roles": dict(roles), "progress": dict(progress), "slots": dict(slots)}
        return json.dumps({"version": _VERSION, **told})
    except (TypeError, ValueError, RecursionError) as error:
        raise SaveError(
            "JSON cannot hold the progress",
            where=where,
            found=error,
            expected="texts, numbers, lists, and dictionaries with texts as keys",
            remedy="convert arrays and numbers of numpy with .tolist()",
        ) from error


def write_tensors(
    file: IO[bytes], tensors: Mapping[str, Array], metadata: Mapping[str, str]
) -> None:
    """Write tensors in the format safetensors, one at a time."""
    header = _header(tensors, metadata)
    file.write(len(header).to_bytes(8, "little") + header)
    for array in tensors.values():
        file.write(np.ascontiguousarray(array).tobytes())


def _header(tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": dict(metadata)}
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
            content = _content(note, where)
            tensors = {name: _tensor(file, name, where) for name in file.keys()}  # noqa: SIM118 not a mapping
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            "the checkpoint cannot be read",
            where=where,
            found=error.strerror if isinstance(error, OSError) and error.strerror else error,
            expected="a safetensors file that TrainingSession.save wrote",
        ) from error
    return Checkpoint(tensors, content["progress"], slots_in(content))


def slots_in(content: Mapping[str, Any]) -> dict[str, Slot]:
    """Return what the content of a checkpoint says of slots, which older ones do not."""
    given = content.get("slots")
    pairs: Mapping[Any, Any] = given if isinstance(given, dict) else {}
    return {
        name: (slot[0], slot[1])
        for name, slot in pairs.items()
        if isinstance(slot, list | tuple) and [type(word) for word in slot] == [str, str]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    }


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


def _content(text: str | None, where: str) -> dict[str, Any]:
    try:
        content = json.loads(text or "")
        readable = content["version"] == _VERSION and isinstance(content["progress"], dict)
    except (ValueError, KeyError, TypeError, RecursionError):
        readable, content = False, {}
    if not readable:
        raise CheckpointError(
            "not a checkpoint of this package, or of a later version of it",
            where=where,
            found=f"metadata {CHECKPOINT_KEY!r}: {text}"[:100],
            expected=f"version {_VERSION}",
            remedy="restore a file that TrainingSession.save wrote",
        )
    return content
