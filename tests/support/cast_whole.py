"""A float32 model with everything in 16 bits, as a converter without rules casts it."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

_TYPES = {
    "float16": (TensorProto.FLOAT16, np.dtype(np.float16)),
    "bfloat16": (TensorProto.BFLOAT16, np.dtype(ml_dtypes.bfloat16)),
}


def cast_whole(model: onnx.ModelProto, precision: str) -> onnx.ModelProto:
    """Return a model in which all that was float32 is float16 or bfloat16, ends included."""
    number, dtype = _TYPES[precision]
    cast = onnx.ModelProto()
    cast.CopyFrom(model)
    for graph in _graphs(cast.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type == TensorProto.FLOAT:
                value.type.tensor_type.elem_type = number
        for tensor in (*graph.initializer, *_held(graph)):
            if tensor.data_type == TensorProto.FLOAT:
                with np.errstate(over="ignore"):
                    numbers = numpy_helper.to_array(tensor).astype(dtype).tobytes()
                tensor.CopyFrom(
                    TensorProto(
                        name=tensor.name, dims=tensor.dims, data_type=number, raw_data=numbers
                    )
                )
        for attribute in (a for node in graph.node for a in node.attribute):
            if attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = number
    return cast


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for attribute in (a for node in graph.node for a in node.attribute):
        if attribute.type == AttributeProto.GRAPH:
            yield from _graphs(attribute.g)


def _held(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """Yield the tensors that nodes have as attributes."""
    for attribute in (a for node in graph.node for a in node.attribute):
        if attribute.type == AttributeProto.TENSOR:
            yield attribute.t
