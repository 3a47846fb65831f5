"""External data: find the file, stay in the model's folder, check the size; read nothing."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import onnx

from amp_rewrite.errors import LoadError
from amp_rewrite.graph.elements import bits
from amp_rewrite.graph.proto.messages import props
from amp_rewrite.graph.streams import Stream

HELD = "\0"
"""The location of data that the process holds: no file has it, for `locate` refuses it there."""


class Location(NamedTuple):
    """Where the data of a tensor lie."""

    folder: str
    location: str
    offset: int
    length: int

    @property
    def path(self) -> str:
        """The file."""
        return os.path.join(self.folder, self.location)


class Held(NamedTuple):
    """A tensor of a model in memory, whose message only refers to it.

    Attributes:
        stream: Returns what ONNX stores for it.
        tensor: Returns the tensor, an object of onnx_ir.
    """

    stream: Callable[[], Stream]
    tensor: Callable[[], Any]


class ExternalFiles:
    """The data files of one model, each looked at once, and what it has in memory instead."""

    def __init__(
        self, base_dir: str | None, held: Iterable[Held] = (), *, model: str | None = None
    ) -> None:
        """Note where data are.

        Args:
            base_dir: The folder that locations are relative to; None refuses every data file.
            held: What messages refer to by the location `HELD` and a number, its offset.
            model: The file of the model. If it is a symbolic link, data may be links to files
                beside what it leads to, as in the cache of Hugging Face.
        """
        self.base_dir = None if base_dir is None else os.path.abspath(base_dir)
        self.held = tuple(held)
        self._beside = None if model is None else os.path.dirname(os.path.realpath(model))
        self._files: dict[str, tuple[str, int]] = {}

    def holding(self, more: Iterable[Held]) -> ExternalFiles:
        """Return the same files with more in memory."""
        files = ExternalFiles(self.base_dir, (*self.held, *more))
        files._beside, files._files = self._beside, self._files
        return files

    @property
    def total(self) -> int:
        """How many bytes the files have that were looked at."""
        return sum(size for _, size in self._files.values())

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that were looked at."""
        return tuple(path for path, _ in self._files.values())

    def locate(self, proto: onnx.TensorProto, size: int, where: str) -> Location | Held:
        """Return where the data of a tensor of `size` elements lie.

        Raises:
            LoadError: The file is missing, too short or outside the folder, or the reference is
                malformed.
        """
        entries = props(proto.external_data)
        if self.held and entries.get("location") == HELD:
            return self.held[int(entries["offset"])]
        if self.base_dir is None:
            raise LoadError(
                "the tensor is external data, but it is unknown of which folder",
                where=where,
                remedy="load the model from its file, or pass base_dir",
            )
        location = entries.get("location", "")
        if not location or "\0" in location:
            raise LoadError("external data without a location", where=where, found=repr(location))
        offset = _number(entries, "offset", 0, where)
        expected = math.ceil(size * bits(proto.data_type) / 8)
        length = _number(entries, "length", expected, where)
        if length != expected:
            raise LoadError(
                "the length of external data does not match type and dimensions",
                where=where,
                found=f"{length} bytes in {location!r}",
                expected=f"{expected} bytes for {_type_name(proto)} {list(proto.dims)}",
            )
        path, available = self._file(location, where)
        if offset + length > available:
            raise LoadError(
                "the external data file is too short",
                where=where,
                found=f"{available} bytes in {path!r}",
                expected=f"{length} bytes from offset {offset}",
                remedy="copy the data file again",
            )
        if path == os.path.join(self.base_dir, location):
            return Location(self.base_dir, location, offset, length)
        return Location(*os.path.split(path), offset, length)

    def _file(self, location: str, where: str) -> tuple[str, int]:
        """Return the path of a data file and its size, after checking where it lies."""
        if location not in self._files:
            self._files[location] = self._examine(location, where)
        return self._files[location]

    def _examine(self, location: str, where: str) -> tuple[str, int]:
        base = self.base_dir or ""
        path = os.path.join(base, location)
        lexical = os.path.normpath(path)
        inside = not os.path.isabs(location) and _is_inside(lexical, os.path.normpath(base))
        real = os.path.realpath(path)
        if inside and not _is_inside(real, os.path.realpath(base)):
            if self._beside is None or not _is_inside(real, self._beside):
                raise LoadError(
                    "external data are a symbolic link that leads out of the model's folder",
                    where=where,
                    found=f"{location!r}, which is {real!r}",
                    expected=f"a file in {base!r}",
                    remedy="copy the model and its data without links, for example by cp -rL",
                )
            path = real
        elif not inside:
            raise LoadError(
                "external data outside the model's folder",
                where=where,
                found=repr(location),
                expected=f"a file in {base!r}",
                remedy="move the data next to the model",
            )
        try:
            status = os.stat(path)
        except OSError as error:
            raise LoadError(
                "the external data file cannot be read",
                where=where,
                found=f"{path!r}: {error.strerror}",
                remedy="put the data file next to the model",
            ) from error
        if not stat.S_ISREG(status.st_mode):
            raise LoadError("external data must be a regular file", where=where, found=repr(path))
        return path, status.st_size


def _type_name(proto: onnx.TensorProto) -> str:
    return onnx.TensorProto.DataType.Name(proto.data_type)  # pyright: ignore[reportArgumentType] it is one


def _is_inside(path: str, folder: str) -> bool:
    return path != folder and os.path.commonpath([path, folder]) == folder


def _number(entries: dict[str, str], key: str, default: int, where: str) -> int:
    digits = entries.get(key)
    if digits is None:
        return default
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise LoadError(f"external data with a malformed {key}", where=where, found=repr(digits))
    return int(digits)
