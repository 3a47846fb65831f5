"""The constants of a rewritten model: as they were, or in the low type."""

from __future__ import annotations

from onnx import TensorProto

from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.io.model_files import Weight
from amp_rewrite.graph.proto.messages import text
from amp_rewrite.rewriting.plan.casts import PlannedWeight


def converted(flat: FlatGraph, weight: PlannedWeight) -> Weight:
    """Return a constant in the low type."""
    low = weight.dtype
    stream = weight.tensor.stream.converted(low, weight.saturate)
    return Weight(converted_message(flat, weight), stream)


def converted_message(flat: FlatGraph, weight: PlannedWeight) -> TensorProto:
    """Return the message of a constant in the low type, without data."""
    message = without_data(weight.tensor.proto)
    message.name = weight.name if weight.keep_float32 else flat.value_names[weight.value]
    message.data_type = weight.dtype.number
    return message


def with_data(weight: Weight) -> TensorProto:
    """Return the message of a weight with its elements in it, unless they go to a data file."""
    is_inline = weight.message.data_location != TensorProto.EXTERNAL
    if weight.stream is not None and is_inline:
        weight.message.raw_data = b"".join(block.tobytes() for block in weight.stream.blocks())
    return weight.message


def without_data(source: TensorProto) -> TensorProto:
    """Return a copy of the message of a tensor, without its data and their place."""
    message = TensorProto(name=source.name, data_type=source.data_type, dims=source.dims)
    if source.doc_string:
        message.doc_string = text(source.doc_string)
    message.metadata_props.extend(source.metadata_props)
    return message
