"""The external data file of a model: which tensors go there, and how they get there."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator

import onnx_ir as ir

from amp_rewrite.graph.io.atomic import Replacement
from amp_rewrite.graph.io.places import Place
from amp_rewrite.graph.io.tensorproto import SparseTensor
from amp_rewrite.graph.io.write_streams import write_streams
from amp_rewrite.graph.streams import Stream
from amp_rewrite.graph.tensors import ConvertedTensor, stored

INLINE_LIMIT = (1 << 31) - (1 << 27)
"""How many bytes of weights a model file may hold: protobuf's 2 GiB less what the rest may need."""

_WORTH_MOVING = 1 << 10
_ALIGNMENT = 64
_PAGE = 1 << 12
_LARGE = 1 << 20  # from here on a tensor starts on a page of its own, so that it can be mapped
_HASH_DIGITS = 12


def all_tensors(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    """Yield the dense tensors of a model, of initializers and attributes, in a fixed order."""
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        yield from _tensors(graph)


def _tensors(graph: ir.Graph) -> Iterator[ir.TensorProtocol]:
    for value in graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and not isinstance(tensor, SparseTensor):
            yield tensor
    for node in graph:
        attributes = node.attributes.data
        for attribute in attributes.values():
            yield from _attribute_tensors(attribute)


def _attribute_tensors(attribute: ir.Attr) -> Iterator[ir.TensorProtocol]:
    kinds = ir.AttributeType
    if attribute.value is None:
        return
    if attribute.type is kinds.TENSOR:
        yield attribute.value
    elif attribute.type is kinds.TENSORS:
        yield from attribute.value
    elif attribute.type is kinds.GRAPH:
        yield from _tensors(attribute.value)
    elif attribute.type is kinds.GRAPHS:
        for graph in attribute.value:
            yield from _tensors(graph)


def source_file(tensor: ir.TensorProtocol) -> str | None:
    """Return the file that a tensor's data are read from, or None if it is in memory."""
    while isinstance(tensor, ConvertedTensor):
        tensor = tensor.source
    return tensor.path if isinstance(tensor, ir.ExternalTensor) else None


def choose(tensors: list[ir.TensorProtocol], limit: int = INLINE_LIMIT) -> list[ir.TensorProtocol]:
    """Return the tensors that go to the data file, each once.

    Those that were external stay external; the others join them if they would make the model file
    too large for protobuf.
    """
    unique = {id(tensor): tensor for tensor in tensors if tensor.dtype is not ir.DataType.STRING}
    inline = sum(t.nbytes for t in unique.values() if source_file(t) is None)
    move_all = inline > limit
    return [
        tensor
        for tensor in unique.values()
        if source_file(tensor) is not None or (move_all and tensor.nbytes >= _WORTH_MOVING)
    ]


def write_data(
    tensors: list[ir.TensorProtocol],
    replacement: Replacement,
    name: str,
    observe: Callable[[memoryview], object],
) -> tuple[str, dict[int, Place]]:
    """Stream tensors into a data file.

    Args:
        tensors: What to write, in order.
        replacement: The open temporary file.
        name: The name of the model file.
        observe: Called with what has been written, as by `write_streams`.

    Returns:
        The name that the data file must get, which contains the hash of its content, and the place
        of every tensor by its id.
    """
    offsets = list(_layout(tensors))
    digest = hashlib.sha256()
    write_streams(_padded(tensors, offsets), replacement.file.fileno(), digest.update, observe)
    data_name = f"{name}.{digest.hexdigest()[:_HASH_DIGITS]}.data"
    places = {
        id(tensor): Place(data_name, offset, tensor.nbytes)
        for tensor, offset in zip(tensors, offsets, strict=True)
    }
    return data_name, places


def _layout(tensors: list[ir.TensorProtocol]) -> Iterator[int]:
    """Yield the offset of each tensor."""
    end = 0
    for tensor in tensors:
        step = _PAGE if tensor.nbytes >= _LARGE else _ALIGNMENT
        start = -(-end // step) * step
        yield start
        end = start + tensor.nbytes


def _padded(tensors: list[ir.TensorProtocol], offsets: list[int]) -> Iterator[Stream]:
    """Yield the tensors as they are stored, each preceded by zeros up to its offset."""
    end = 0
    for tensor, offset in zip(tensors, offsets, strict=True):
        yield Stream.of_bytes(bytes(offset - end))
        yield stored(tensor)
        end = offset + tensor.nbytes


def old_files(folder: str, name: str) -> list[str]:
    """Return the data files that earlier saves of the model file `name` left in `folder`."""
    pattern = re.compile(re.escape(name) + rf"\.[0-9a-f]{{{_HASH_DIGITS}}}\.data")
    return sorted(
        entry.path
        for entry in os.scandir(folder)
        if pattern.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
    )
