"""A model as an engine reads it: a message whose large weights lie in files, or a file."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Collection, Iterable, Sequence
from itertools import count
from typing import NamedTuple

import onnx_ir as ir

from amp_rewrite.errors import SaveError
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.io.model_files import source_file
from amp_rewrite.graph.io.save import save, to_proto
from amp_rewrite.graph.io.write_streams import write_streams
from amp_rewrite.graph.streams import Conversion, FileRange, Stream
from amp_rewrite.graph.tensors import all_tensors, stored

_IN_MEMORY = 1 << 24
"""Up to this many bytes of weights go to the engine as one message, which is copied twice."""

_LARGE = 1 << 30
"""Bytes of weights in float32 from which on no copy of them is made."""

_SMALL = 1 << 10
"""Bytes up to which a weight may be a shape: these are in the message always."""

_PAGE = 1 << 12
"""Each weight begins on a page of its own, so that it can be mapped."""

_Key = tuple[FileRange, tuple[int, int], int, str, tuple[Conversion, ...]]


class Message(NamedTuple):
    """A model for ONNX Runtime.

    Attributes:
        content: Its message, or the path of a file.
        folder: What the locations of external data in the message are relative to, if it has any.
    """

    content: bytes | str
    folder: str | None = None


class _Folder:
    """A temporary folder of weights, which ends with the last session that reads it.

    `written` are the weights there that come from files, by `_key` -> file and offset.
    """

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="amp_rewrite-")
        self.written: dict[_Key, tuple[str, int]] = {}
        self._files = count()
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def hold(self, tensors: Sequence[ir.TensorProtocol]) -> list[ir.TensorProtocol]:
        """Return tensors whose data are here, after writing those that were not."""
        name, end, streams = f"{next(self._files)}.data", 0, list[Stream]()
        held: list[ir.TensorProtocol] = []
        for tensor in tensors:
            stream = stored(tensor)
            key = _key(stream)
            place = None if key is None else self.written.get(key)
            if place is None:
                streams.append(Stream.of_bytes(bytes(-end % _PAGE)))
                end += -end % _PAGE
                place, end = (name, end), end + stream.nbytes
                streams.append(stream)
            if key is not None:
                self.written[key] = place
            held.append(_placed(tensor, *place, self.path))
        try:
            with open(os.path.join(self.path, name), "wb") as file:
                write_streams(streams, file.fileno(), is_read_next=True)
        except OSError as error:
            raise SaveError(
                "the weights cannot be written to a temporary file",
                where=self.path,
                found=error.strerror or error,
                remedy="let TMPDIR name a folder with more space",
            ) from error
        return held


_FOLDERS: weakref.WeakSet[_Folder] = weakref.WeakSet()
"""The folders that there are: models of one verification have most of their weights in common."""


def model_message(model: ir.Model, owner: object) -> Message:
    """Return a model as a message; weights that are in files stay there.

    Weights that are converted, or too large for a message, are written to a temporary file, once
    for all models with them: writing them for each session takes 40 % more time for a `verify` of
    600 MB. The file ends when the last `owner` does.

    Raises:
        SaveError: It cannot be written.
    """
    if not _is_large(all_tensors(model)):
        return Message(to_proto(model).SerializeToString())
    copy = _with_shapes_inside(model)
    values = [v for g in (copy.graph, *copy.graph.subgraphs()) for v in g.initializers.values()]
    tensors = [(v, v.const_value) for v in values if v.const_value is not None]
    large = [(v, t) for v, t in tensors if source_file(stored(t)) is not None or t.nbytes > _SMALL]
    known = {id(t) for _, t in tensors}
    others = [t for t in all_tensors(copy) if id(t) not in known]  # in attributes and functions
    if _is_large(others):
        return Message(_saved(copy, owner))
    folders = {t.base_dir for _, t in large if isinstance(t, ir.ExternalTensor)}
    in_files = all(isinstance(t, ir.ExternalTensor) for _, t in large)
    if in_files and len(folders) == 1:
        return Message(to_proto(copy).SerializeToString(), os.fspath(folders.pop()))
    folder = _folder_of({key for _, t in large if (key := _key(stored(t))) is not None})
    for (value, _), held in zip(large, folder.hold([t for _, t in large]), strict=True):
        value.const_value = held
    weakref.finalize(owner, _keep, folder)
    return Message(to_proto(copy).SerializeToString(), folder.path)


def _keep(folder: _Folder) -> None:
    """Hold a folder until its owner has ended."""


def _folder_of(keys: Collection[_Key]) -> _Folder:
    """Return the folder that has most of some weights, or a new one."""
    found = max(_FOLDERS, key=lambda f: len(f.written.keys() & set(keys)), default=None)
    if found is None or found.written.keys().isdisjoint(keys):
        found = _Folder()
        _FOLDERS.add(found)
    return found


def _key(stream: Stream) -> _Key | None:
    """Return the same for tensors of equal content: their place in a file, and conversions."""
    if not isinstance(stream.origin, FileRange):
        return None
    try:
        file = os.stat(stream.origin.path)  # it may be replaced while a session is open
    except OSError:
        return None  # reading it says what is wrong
    state = file.st_mtime_ns, file.st_size
    return stream.origin, state, stream.count, stream.dtype.str, stream.conversions


def _placed(tensor: ir.TensorProtocol, name: str, offset: int, folder: str) -> ir.ExternalTensor:
    return ir.ExternalTensor(
        name,
        offset,
        tensor.nbytes,
        tensor.dtype,
        shape=ir.Shape(tensor.shape.numpy()),
        name=tensor.name or "",
        base_dir=folder,
    )


def model_source(model: ir.Model, owner: object) -> bytes | str:
    """Return a model as bytes, or as the path of a file that ends when its `owner` does."""
    if not _is_large(all_tensors(model)):
        return to_proto(model).SerializeToString()
    return _saved(_with_shapes_inside(model), owner)


def _saved(model: ir.Model, owner: object) -> str:
    """Write a model to a file that ends when its `owner` does."""
    folder = tempfile.mkdtemp(prefix="amp_rewrite-")
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, "model.onnx")
    save(model, path)
    return path


def _with_shapes_inside(model: ir.Model) -> ir.Model:
    """Return a model whose small weights are not in files: engines read shapes while they load."""
    copy = clone(model)
    for graph in (copy.graph, *copy.graph.subgraphs()):
        for value in graph.initializers.values():
            held = value.const_value
            if held is not None and source_file(stored(held)) is not None and held.nbytes <= _SMALL:
                value.const_value = ir.Tensor(held.numpy(), name=held.name)
    return copy


def stays_in_files(model: ir.Model) -> bool:
    """Return whether weights are too many for a second copy of them in memory."""
    sizes = (4 * t.size if t.dtype.is_floating_point() else t.nbytes for t in all_tensors(model))
    return sum(sizes) > _LARGE


def _is_large(tensors: Iterable[ir.TensorProtocol]) -> bool:
    """Return whether tensors are too many for a message, or in files already."""
    tensors = list(tensors)
    external = any(source_file(stored(t)) is not None for t in tensors)
    return external or sum(t.nbytes for t in tensors) > _IN_MEMORY
