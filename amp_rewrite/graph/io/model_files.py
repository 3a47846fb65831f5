"""A model file and its data file: replaced together, or not at all.

The data file is named after its content and complete before the model file is replaced; only then
are data files of the previous model removed. So a killed process leaves files that belong together.
A judge may look at a file that is complete under a temporary name; what it refuses is not written.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from typing import NamedTuple

import onnx
from google.protobuf.message import EncodeError

from amp_rewrite.errors import SaveError
from amp_rewrite.graph.io.atomic import Replacement, check_target, one_at_a_time
from amp_rewrite.graph.io.write_streams import SEGMENT, write_streams
from amp_rewrite.graph.proto.messages import varint
from amp_rewrite.graph.streams import FileRange, Stream

Path = str | os.PathLike[str]

INLINE_LIMIT = (1 << 31) - (1 << 27)
"""How many bytes of weights a model file may hold: protobuf's 2 GiB less what the rest may need."""

_ALIGNMENT = 64
_PAGE = 1 << 12
_LARGE = 1 << 20  # from here on a tensor starts on a page of its own, so that it can be mapped
_SHORT = 1 << 12  # bytes of a tensor that is joined with what stands around it
_HASH_DIGITS = 12

_PROTOBUF_LIMIT = 1 << 31
_LENGTH_DELIMITED = 2


def _tag(message: type, field: str) -> bytes:
    return varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | _LENGTH_DELIMITED)


_GRAPH = _tag(onnx.ModelProto, "graph")
_INITIALIZER = _tag(onnx.GraphProto, "initializer")
_RAW_DATA = _tag(onnx.TensorProto, "raw_data")


class Place(NamedTuple):
    """Where the data of a tensor lie in an external file."""

    location: str
    offset: int
    length: int


def refer(message: onnx.TensorProto, place: Place) -> None:
    """Let the message of a tensor name the place of its data."""
    message.data_location = onnx.TensorProto.EXTERNAL
    for key, entry in place._asdict().items():
        message.external_data.add(key=key, value=str(entry))


class Written(NamedTuple):
    """How far saving is: bytes of weights that have been written, and all that there are."""

    done: int
    total: int


Progress = Callable[[Written], None]


class Weight(NamedTuple):
    """An initializer."""

    message: onnx.TensorProto
    stream: Stream | None = None

    def pieces(self) -> Iterator[bytes | Stream]:
        """Yield it as it is stored in the model file."""
        yield self.message.SerializeToString(deterministic=True)
        if self.stream is not None:
            yield _RAW_DATA + varint(self.stream.nbytes)
            yield self.stream


class Parts(NamedTuple):
    """A ModelProto in parts."""

    header: bytes
    body: bytes
    inline: Sequence[Weight]

    def streams(self) -> Iterator[Stream]:
        """Yield the file.

        A message is the concatenation of its fields in any order, so that the graph can be written
        without its initializers, followed by each initializer as one more field.

        Raises:
            ValueError: It is too large for a protobuf message.
        """
        graph: list[bytes | Stream] = [self.body]
        for weight in self.inline:
            pieces = [*weight.pieces()]
            graph += (_INITIALIZER + varint(_size_of(pieces)), *pieces)
        total = _size_of(graph)
        if len(self.header) + total + 16 >= _PROTOBUF_LIMIT:
            raise ValueError(f"{total} bytes are too many for a protobuf message")
        yield from _join_streams((self.header + _GRAPH + varint(total), *graph))


def _size_of(pieces: Iterable[bytes | Stream]) -> int:
    return sum(len(piece) if isinstance(piece, bytes) else piece.nbytes for piece in pieces)


def _join_streams(pieces: Iterable[bytes | Stream]) -> Iterator[Stream]:
    """Yield streams of the same bytes; what is short and in memory is read and joined.

    A stream costs as much as copying some KiB, and a model may have 10,000 small initializers.
    """
    pending = bytearray()
    for piece in pieces:
        data = _short_data(piece)
        if data is not None:
            pending += data
            if len(pending) < SEGMENT:
                continue
        yield Stream.of_bytes(bytes(pending))
        pending.clear()
        if data is None:
            yield piece if isinstance(piece, Stream) else Stream.of_bytes(piece)
    yield Stream.of_bytes(bytes(pending))


def _short_data(piece: bytes | Stream) -> bytes | None:
    """Return the bytes of a piece that is short and in memory; None of any other."""
    if isinstance(piece, bytes):
        return piece if len(piece) <= _SHORT else None
    is_short = piece.nbytes <= _SHORT and source_file(piece) is None
    return piece.array().tobytes() if is_short else None


class Meter:
    """Counts the bytes of a model's tensors as they are written, and tells of it."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        """Begin with nothing written of `total` bytes."""
        if progress is not None and not callable(progress):
            raise SaveError("progress must be callable", found=repr(progress))
        self._total = total
        self._done = 0
        self._progress = progress

    def add(self, data: memoryview) -> None:
        """Count bytes; those that stand between tensors never make more than there are."""
        self._done = min(self._done + data.nbytes, self._total)
        if self._progress is not None:
            self._progress(Written(self._done, self._total))


_TAKEN: ContextVar[frozenset[str] | None] = ContextVar("taken", default=None)


@contextmanager
def plain_data_names(taken: Collection[str]) -> Generator[None]:
    """Call data files as exporters do, and transformers.js looks for them: `model.onnx_data`.

    `taken` are paths that no data file may have.
    """
    before = _TAKEN.set(frozenset(taken))
    try:
        yield
    finally:
        _TAKEN.reset(before)


Judge = Callable[[str], None]
"""Is given the path of a complete file; raises an AmpError to refuse it."""

_JUDGE: ContextVar[Judge | None] = ContextVar("judge", default=None)


@contextmanager
def judged_by(judge: Judge | None) -> Generator[None]:
    """Have every model file that is saved in the block judged before it takes its place."""
    before = _JUDGE.set(judge)
    try:
        yield
    finally:
        _JUDGE.reset(before)


def judge_file(path: str) -> None:
    """Have a complete file judged if somebody wants to; raises what the judge does."""
    judge = _JUDGE.get()
    if judge is not None:
        with judged_by(None):  # what the judge saves is its own business
            judge(path)


def check_writable(path: Path) -> None:
    """Refuse an output that could not be written in the end."""
    check_target(*os.path.split(os.path.abspath(os.fspath(path))))


def refuse_same(output: str, inputs: Iterable[str], what: str) -> None:
    """Refuse an output that is one of some inputs."""
    for path in inputs:
        same = os.path.abspath(path) == os.path.abspath(output)
        with suppress(OSError, ValueError):
            same = same or os.path.samefile(path, output)
        if same:
            raise SaveError(what, where=output, found=path, remedy="choose another output path")


def replace_model(
    output: str,
    external: Sequence[Stream],
    parts: Callable[[Sequence[Place]], Parts],
    meter: Meter,
    sources: Collection[str],
) -> None:
    """Write a model file, and a data file if there is something to put there.

    `output` is absolute; an existing file is replaced in one step. `parts` makes it, given the
    places of `external`, which goes to the data file; `sources` are the files that the model reads.

    Raises:
        SaveError: The target cannot be written, or is one of `sources`; no new file is left behind.
        AmpError: Whoever judges new files refuses it; no new file is left behind.
    """
    folder, name = os.path.split(output)
    try:
        check_target(folder, name)
        refuse_same(output, sorted(sources), "the output is a data file of the model")
        with ExitStack() as files:
            model_file = files.enter_context(Replacement(folder, name))
            data_file, data_name, places = None, "", list[Place]()
            if external:
                data_file = files.enter_context(Replacement(folder, name))
                data_name, places = _write_data(external, data_file, folder, name, meter)
            write_streams(parts(places).streams(), model_file.file.fileno(), meter.add)
            with one_at_a_time(folder), ExitStack() as on_failure:
                if data_file is not None:
                    new_file = os.path.join(folder, data_name)
                    if not os.path.lexists(new_file):
                        on_failure.callback(_remove_unless_used, new_file, model_file)
                    data_file.commit(data_name)
                model_file.file.flush()
                judge_file(model_file.path)
                model_file.commit(name)
                kept = {data_name, *(os.path.realpath(file) for file in sources)}
                _remove_stale(data_files(output), kept)
    except (OSError, ValueError, EncodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise SaveError(
            "the model cannot be written", where=output, found=reason or error
        ) from error


def source_file(stream: Stream | None) -> str | None:
    """Return the file that a stream is read from, or None if it is in memory."""
    if stream is not None and isinstance(stream.origin, FileRange):
        return stream.origin.path
    return None


def _write_data(
    external: Sequence[Stream], replacement: Replacement, folder: str, name: str, meter: Meter
) -> tuple[str, list[Place]]:
    """Write a data file; return its name, which contains its hash by default, and the places."""
    digest, padded, places, end = hashlib.sha256(), list[Stream](), list[tuple[int, int]](), 0
    for stream in external:
        step = _PAGE if stream.nbytes >= _LARGE else _ALIGNMENT
        start = -(-end // step) * step
        padded += (Stream.of_bytes(bytes(start - end)), stream)
        places.append((start, stream.nbytes))
        end = start + stream.nbytes
    write_streams(padded, replacement.file.fileno(), digest.update, meter.add)
    taken, data_name = _TAKEN.get(), f"{name}_data"
    if taken is None or os.path.join(folder, data_name) in taken:
        data_name = f"{name}.{digest.hexdigest()[:_HASH_DIGITS]}.data"
    return data_name, [Place(data_name, *place) for place in places]


def data_files(path: Path) -> list[str]:
    """Return the data files that saves of a model file left beside it."""
    folder, name = os.path.split(os.path.abspath(path))
    pattern = re.compile(re.escape(name) + rf"\.[0-9a-f]{{{_HASH_DIGITS}}}\.data")
    return sorted(
        entry.path
        for entry in os.scandir(folder)
        if pattern.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
    )


def _remove_unless_used(data_file: str, model_file: Replacement) -> None:
    if not model_file.committed:
        with suppress(FileNotFoundError):
            os.unlink(data_file)


def _remove_stale(stale: Iterable[str], kept: set[str]) -> None:
    """Remove data files of the previous model, except the new one and what this model reads."""
    for file in stale:
        if kept.isdisjoint((os.path.basename(file), os.path.realpath(file))):
            with suppress(OSError):
                os.unlink(file)
