"""Write a model: all of it or nothing, one tensor at a time.

The data file is named after its content and complete before the model file is replaced; only then
are data files of the previous model removed. Whenever the process is killed, the model file and the
data file that it names belong together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import NamedTuple

import onnx
import onnx_ir as ir
from google.protobuf.message import EncodeError

from amp_rewrite.errors import SaveError
from amp_rewrite.graph.io.atomic import Replacement, check_target
from amp_rewrite.graph.io.datafile import (
    INLINE_LIMIT,
    all_tensors,
    choose,
    old_files,
    source_file,
    write_data,
)
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.graph.io.places import Place
from amp_rewrite.graph.io.wire import varint
from amp_rewrite.graph.io.write import ModelWriter
from amp_rewrite.graph.io.write_streams import write_streams
from amp_rewrite.graph.origin import paused_gc
from amp_rewrite.graph.streams import Stream
from amp_rewrite.graph.tensors import stored

Path = str | os.PathLike[str]


class Written(NamedTuple):
    """How far saving is: bytes of weights that have been written, and all that there are."""

    done: int
    total: int


Progress = Callable[[Written], None]

_PROTOBUF_LIMIT = 1 << 31
_LENGTH_DELIMITED = 2
_GRAPH_TAG = onnx.ModelProto.DESCRIPTOR.fields_by_name["graph"].number << 3 | _LENGTH_DELIMITED
_INITIALIZER_TAG = (
    onnx.GraphProto.DESCRIPTOR.fields_by_name["initializer"].number << 3 | _LENGTH_DELIMITED
)
_RAW_DATA_TAG = (
    onnx.TensorProto.DESCRIPTOR.fields_by_name["raw_data"].number << 3 | _LENGTH_DELIMITED
)


def check_output_path(input_path: Path, output_path: Path) -> None:
    """Refuse an output that is the input, under whatever name.

    Raises:
        SaveError: Both paths lead to one file, be it through links.
    """
    _refuse_same(os.fspath(output_path), [os.fspath(input_path)], "the output is the input")


def check_writable(path: Path) -> None:
    """Refuse an output that could not be written in the end.

    Raises:
        SaveError: Its folder is missing, or it is no regular file or write-protected.
    """
    check_target(*os.path.split(os.path.abspath(os.fspath(path))))


def _refuse_same(output: str, inputs: Iterable[str], what: str) -> None:
    for path in inputs:
        same = os.path.abspath(path) == os.path.abspath(output)
        with suppress(OSError, ValueError):
            same = same or os.path.samefile(path, output)
        if same:
            raise SaveError(what, where=output, found=path, remedy="choose another output path")


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """Return the model as a ModelProto; external tensors stay references to their files.

    Raises:
        SaveError: The weights held in memory are too large for a protobuf message.
    """
    inline = sum(t.nbytes for t in all_tensors(model) if not isinstance(t, ir.ExternalTensor))
    if inline > INLINE_LIMIT:
        raise SaveError(
            "the model is too large for one protobuf message",
            found=f"{inline} bytes of weights",
            expected=f"at most {INLINE_LIMIT}",
            remedy="save it to a file instead",
        )
    with paused_gc():
        writer = ModelWriter(model)
        proto = writer.header()
        writer.graph(proto.graph, model.graph)
        return proto


def save(
    model: ir.Model | onnx.ModelProto, path: Path, *, progress: Progress | None = None
) -> None:
    """Write the model to `path`; external tensors go to one data file next to it.

    Args:
        model: The model, or what `write_training_info` returned; it is not changed. Weights that it
            reads from files are streamed.
        path: The model file. An existing one is replaced in one step.
        progress: Called every few MiB.

    Raises:
        SaveError: It cannot be written; no new file is left behind.
        LoadError: External data of the model have become unreadable.
    """
    if isinstance(model, onnx.ModelProto):
        model = load(model)
    output = os.path.abspath(path_text(path, SaveError))
    folder, name = os.path.split(output)
    tensors = list(all_tensors(model))
    sources = {file for file in map(source_file, tensors) if file is not None}
    try:
        check_target(folder, name)
        _refuse_same(output, sorted(sources), "the output is a data file of the model")
        with paused_gc():
            _save(model, folder, name, choose(tensors), sources, _Meter(tensors, progress))
    except (OSError, ValueError, EncodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise SaveError(
            "the model cannot be written", where=output, found=reason or error
        ) from error


class _Meter:
    """Counts the bytes of a model's tensors as they are written, and tells of it."""

    def __init__(self, tensors: Iterable[ir.TensorProtocol], progress: Progress | None) -> None:
        self._total = sum({id(tensor): tensor.nbytes for tensor in tensors}.values())
        self._done = 0
        self._progress = progress

    def add(self, data: memoryview) -> None:
        """Count bytes; those that stand between tensors never make more than there are."""
        self._done = min(self._done + data.nbytes, self._total)
        if self._progress is not None:
            self._progress(Written(self._done, self._total))


def _save(
    model: ir.Model,
    folder: str,
    name: str,
    external: list[ir.TensorProtocol],
    sources: set[str],
    meter: _Meter,
) -> None:
    stale = old_files(folder, name)
    with Replacement(folder, name) as model_file, ExitStack() as on_failure:
        data_name, places = None, dict[int, Place]()
        if external:
            with Replacement(folder, name) as data_file:
                data_name, places = write_data(external, data_file, name, meter.add)
                _write_model(model, places, model_file, meter)
                new_file = os.path.join(folder, data_name)
                if not os.path.lexists(new_file):
                    on_failure.callback(_remove_unless_used, new_file, model_file)
                data_file.commit(data_name)
        else:
            _write_model(model, places, model_file, meter)
        model_file.commit(name)
    _remove_stale(stale, data_name, sources)


def _remove_unless_used(data_file: str, model_file: Replacement) -> None:
    """Remove a new data file if the model file that names it has not been put in place."""
    if not model_file.committed:
        with suppress(FileNotFoundError):
            os.unlink(data_file)


def _remove_stale(stale: list[str], data_name: str | None, sources: set[str]) -> None:
    """Remove data files of the previous model, except what this model still reads."""
    kept = {os.path.realpath(file) for file in sources}
    for file in stale:
        if os.path.basename(file) != data_name and os.path.realpath(file) not in kept:
            with suppress(OSError):
                os.unlink(file)


def _write_model(
    model: ir.Model, places: dict[int, Place], replacement: Replacement, meter: _Meter
) -> None:
    """Write a ModelProto: what is small as messages, initializers as they are streamed."""
    write_streams(_model_streams(model, places), replacement.file.fileno(), meter.add)


def _model_streams(model: ir.Model, places: dict[int, Place]) -> Iterator[Stream]:
    """Yield the parts of a ModelProto.

    A message is the concatenation of its fields in any order, so that the graph can be written as
    one message without its initializers, followed by each initializer as one more field.
    """
    writer = ModelWriter(model, places)
    header = writer.header().SerializeToString(deterministic=True)
    graph = onnx.GraphProto()
    deferred: list[ir.Value] = []
    writer.graph(graph, model.graph, deferred)
    body = graph.SerializeToString(deterministic=True)
    del graph
    sizes = [_initializer_size(writer, value) for value in deferred]
    total = len(body) + sum(1 + len(varint(size)) + size for size in sizes)
    if len(header) + total + 16 >= _PROTOBUF_LIMIT:
        raise ValueError(f"{total} bytes are too many for a protobuf message")
    yield Stream.of_bytes(header + varint(_GRAPH_TAG) + varint(total))
    yield Stream.of_bytes(body)
    for value, size in zip(deferred, sizes, strict=True):
        yield from _initializer_streams(writer, value, size)


def _is_message(tensor: ir.TensorProtocol) -> bool:
    """Return whether a tensor is written as the message it came in."""
    return isinstance(tensor, ir.TensorProtoTensor) or tensor.dtype is ir.DataType.STRING


def _message(writer: ModelWriter, value: ir.Value) -> onnx.TensorProto:
    tensor = value.const_value
    assert tensor is not None, "only initializers with a tensor are deferred"
    if tensor.name != value.name:  # two initializers may share a tensor
        tensor.name = value.name
    if isinstance(tensor, ir.TensorProtoTensor):
        return tensor.raw
    proto = onnx.TensorProto()
    writer.tensor(proto, tensor, data=tensor.dtype is ir.DataType.STRING)
    return proto


def _initializer_size(writer: ModelWriter, value: ir.Value) -> int:
    tensor = value.const_value
    size = _message(writer, value).ByteSize()
    if tensor is None or _is_message(tensor):
        return size
    return size + 1 + len(varint(tensor.nbytes)) + tensor.nbytes


def _initializer_streams(writer: ModelWriter, value: ir.Value, size: int) -> Iterator[Stream]:
    tensor = value.const_value
    message = _message(writer, value).SerializeToString(deterministic=True)
    begin = varint(_INITIALIZER_TAG) + varint(size) + message
    if tensor is None or _is_message(tensor):
        yield Stream.of_bytes(begin)
    else:
        yield Stream.of_bytes(begin + varint(_RAW_DATA_TAG) + varint(tensor.nbytes))
        yield stored(tensor)
