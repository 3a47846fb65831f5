"""Shapes of all values of a model, where a decision needs sizes and the file has free ones.

Most files record the shapes of inputs and outputs alone, and many leave a batch or a length free.
onnx's inference finds the rest, with lengths put in the place of free dimensions of inputs: 1 for a
first one, the batch, and `LENGTH` for any other, unless an equal name says that two are the same.
What inference does not find has as many elements as the largest value that its node reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

import numpy as np
import onnx
import onnx.shape_inference
from google.protobuf.message import EncodeError

from amp_rewrite.graph.flat import ABSENT, Array, FlatGraph
from amp_rewrite.graph.proto.flat_proto import FlatProto
from amp_rewrite.graph.sizes import Shape

if TYPE_CHECKING:
    from amp_rewrite.graph.flat_model import FlatModel

BATCH, LENGTH = 1, 128
"""What a free dimension counts: the first one of an input, and any other."""

_INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
_MOST_NUMBERS = 64
"""What inference reads of initializers: shapes, axes and indices."""


def assumed_shapes(flat: FlatGraph) -> dict[int, Shape]:
    """Return, by value, the shapes that inference finds with the lengths assumed above.

    A file that records every shape, without a free dimension, is not inferred. Values of graphs
    inside nodes are among them; what inference does not find, or all if it fails, is left out.
    """
    recorded = [flat.shape(value) for value in range(flat.n_values)]
    known = {v: shape for v, shape in enumerate(recorded) if shape is not None}
    known = {v: shape for v, shape in known.items() if None not in shape}
    if len(known) == len(recorded):
        return known
    try:
        inferred = onnx.shape_inference.infer_shapes(_slim(flat), data_prop=True)
    except (onnx.shape_inference.InferenceError, EncodeError, RuntimeError, ValueError):
        return known
    owners = {body.owner for body in flat.bodies if body.owner != ABSENT}
    found = dict(_shapes(inferred.graph, nested=bool(owners)))
    for value, name in enumerate(flat.value_names):
        if value not in known and name in found:
            known[value] = found[name]
    return known


def assumed_elements(flat: FlatGraph, shapes: Mapping[int, Shape]) -> Array:
    """Return, by value, how many elements it has by these shapes, or by what its node reads."""
    counts = [1] * flat.n_values
    products: dict[tuple[int | None, ...], int] = {}
    for value, shape in shapes.items():
        key = tuple(shape)
        if key not in products:
            products[key] = int(np.prod([length or 0 for length in key], dtype=np.int64))
        counts[value] = products[key]
    if len(shapes) < flat.n_values:
        for node in range(flat.n_nodes):
            missing = [v for v in flat.outputs_of(node) if v not in shapes]
            if missing:
                most = max((counts[v] for v in flat.inputs_of(node) if v != ABSENT), default=1)
                for value in missing:
                    counts[value] = most
    return np.array(counts, np.int64)


def _slim(flat: FlatGraph) -> onnx.ModelProto:
    """Return the model without its weights and without shapes that have a free dimension."""
    if isinstance(flat, FlatProto):
        proto = _without_weights(flat)
    else:
        from amp_rewrite.graph.io.slim import slim_proto  # with onnx_ir, which files do not need

        proto = slim_proto(cast("FlatModel", flat).model)
    del proto.graph.value_info[:]
    for info in proto.graph.output:
        info.type.tensor_type.ClearField("shape")
    lengths: dict[str, int] = {}
    for info in proto.graph.input:
        _assume(info, lengths)
    return proto


def _without_weights(flat: FlatProto) -> onnx.ModelProto:
    """Return a model of which all initializers but short ones of integers are inputs."""
    given = flat.proto
    proto = onnx.ModelProto(ir_version=given.ir_version, opset_import=given.opset_import)
    proto.functions.extend(given.functions)
    graph, known = proto.graph, set[str]()
    graph.node.extend(given.graph.node)
    for value in flat.main.initializers:
        name, tensor = flat.value_names[value], flat.tensors.get(value)
        if tensor is None:
            continue
        known.add(name)
        if tensor.dtype in _INTEGERS and tensor.size <= _MOST_NUMBERS:
            graph.initializer.append(onnx.numpy_helper.from_array(tensor.numpy(), name))
        else:
            graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.dtype, tensor.dims))
    graph.input.extend(info for info in given.graph.input if info.name not in known)
    graph.output.extend(given.graph.output)
    return proto


def _assume(info: onnx.ValueInfoProto, lengths: dict[str, int]) -> None:
    """Give an input's free dimensions a length; equal names get equal ones."""
    if not info.type.HasField("tensor_type"):
        return
    for axis, dim in enumerate(info.type.tensor_type.shape.dim):
        if not dim.HasField("dim_value"):
            length = LENGTH if axis else BATCH
            dim.dim_value = lengths.setdefault(dim.dim_param, length) if dim.dim_param else length


def _shapes(graph: onnx.GraphProto, *, nested: bool) -> Iterator[tuple[str, Shape]]:
    """Yield the known shapes of a graph's values by name, and those of the graphs inside it.

    Equal types, of which there are few, are read once.
    """
    shapes: dict[bytes, Shape | None] = {}
    for info in (*graph.input, *graph.output, *graph.value_info):
        spelled = info.type.SerializeToString()
        if spelled not in shapes:
            shapes[spelled] = _static(info.type)
        shape = shapes[spelled]
        if shape is not None:
            yield info.name, shape
    for node in graph.node if nested else ():
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _shapes(attribute.g, nested=True)


def _static(type_: onnx.TypeProto) -> Shape | None:
    """Return the shape of a tensor's type, None if it does not have all lengths."""
    if not type_.HasField("tensor_type") or not type_.tensor_type.HasField("shape"):
        return None
    dims = type_.tensor_type.shape.dim
    return [d.dim_value for d in dims] if all(d.HasField("dim_value") for d in dims) else None
