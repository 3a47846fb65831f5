"""The constants of a rewritten model: as they were, or in the low type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from amp_rewrite.graph.proto.flat_proto import FlatProto
from amp_rewrite.graph.proto.messages import text
from amp_rewrite.graph.proto.stored import StoredTensor
from amp_rewrite.graph.streams import Stream
from amp_rewrite.rewriting.casts import PlannedWeight
from amp_rewrite.rewriting.rewiring import Rewiring


@dataclass(frozen=True, slots=True)
class Weight:
    """An initializer of the rewritten model.

    Attributes:
        message: Its message, without data if `stream` has them.
        stream: Its elements; None if they are in the message.
    """

    message: TensorProto
    stream: Stream | None = None


def rewritten_weights(wiring: Rewiring, number: int) -> Iterator[Weight]:
    """Yield the dense initializers of a graph in order."""
    flat = wiring.flat
    for value in flat.bodies[number].initializers:
        if value in wiring.weights:
            yield converted(flat, wiring.weights[value])
        elif value in flat.tensors:
            tensor = flat.tensors[value]
            if tensor.location is None:
                yield Weight(tensor.proto)
            else:
                message = _described(tensor, tensor.proto.name, tensor.dtype)
                yield Weight(message, tensor.stored)
    for weight in wiring.copies.get(number, ()):
        yield converted(flat, weight)


def converted(flat: FlatProto, weight: PlannedWeight) -> Weight:
    """Return a constant in the low type."""
    low = weight.dtype
    name = weight.name if weight.keep_float32 else flat.value_names[weight.value]
    message = _described(weight.tensor, name, low.number)
    return Weight(message, flat.elements(weight.tensor).converted(low, weight.saturate))


def with_data(weight: Weight) -> TensorProto:
    """Return the message of a weight with its elements in it, unless they go to a data file."""
    is_inline = weight.message.data_location != TensorProto.EXTERNAL
    if weight.stream is not None and is_inline:
        weight.message.raw_data = b"".join(block.tobytes() for block in weight.stream.blocks())
    return weight.message


def _described(tensor: object, name: str, number: int) -> TensorProto:
    """Return the message of a tensor without data."""
    message = TensorProto(name=name)
    if isinstance(tensor, StoredTensor):
        source = tensor.proto
        if source.doc_string:
            message.doc_string = text(source.doc_string)
        message.dims.extend(tensor.dims)
        if source.metadata_props:
            message.metadata_props.extend(source.metadata_props)
    else:
        message.dims.extend(np.shape(tensor.numpy()))  # pyright: ignore[reportAttributeAccessIssue] a tensor
    message.data_type = number
    return message
