"""Shapes of all values of a model, where a decision needs sizes and the file has free ones.

Most files record the shapes of inputs and outputs alone, and many leave a batch or a length free.
onnx's inference finds the rest, with lengths put in the place of free dimensions of inputs: 1 for a
first one, the batch, or what the model says under `BATCH_KEY`, and `LENGTH` for any other, unless
an equal name says that two are the same. What is computed of shapes alone, which it cannot follow
through every operator, is computed here, and then it looks again.
What inference does not find has as many elements as the largest value that its node reads, among
those that are computed if there is one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import onnx

from amp_rewrite.graph.constants import FIRST_IR_WITH_OVERRIDES
from amp_rewrite.graph.flat import ABSENT, Array, FlatGraph
from amp_rewrite.graph.metadata_keys import BATCH_KEY
from amp_rewrite.graph.proto.flat_proto import FlatProto
from amp_rewrite.graph.proto.messages import graphs_of
from amp_rewrite.graph.proto.missing_shapes import hand_down, is_elsewhere, without_weights
from amp_rewrite.graph.proto.shape_inference import FAILURES, inferred
from amp_rewrite.graph.sizes import Shape

if TYPE_CHECKING:
    from amp_rewrite.graph.flat_model import FlatModel

BATCH, LENGTH = 1, 128
"""What a free dimension counts: the first one of an input, and any other."""

LENGTHS = (LENGTH, 8 * LENGTH, 64 * LENGTH)
"""What it counts where the one before is shorter than a window that slides along it."""

# operators: what makes tensors of any size of a few numbers.
_GROWING = ("ConstantOfShape", "Expand", "Range")
_LARGEST = 4096
"""Elements of the largest of them that is made."""

_ROUNDS = 8
"""How often what is computed of shapes is looked at again."""

# operators: what shapes are computed with.
_OF_SHAPES = (
    "Add Cast Ceil Concat Constant ConstantOfShape Div Equal Expand Floor Gather Greater Identity "
    "Less Max Min Mod Mul Range ReduceProd Reshape Slice Squeeze Sub Transpose Unsqueeze "
    "Where"
)


def assumed_shapes(flat: FlatGraph) -> dict[int, Shape]:
    """Return, by value, the shapes that inference finds with the lengths assumed above.

    A file that records every shape, without a free dimension, is not inferred. Values of graphs
    inside nodes are among them; what inference does not find, or all if it fails, is left out.
    """
    recorded = [flat.recorded_shape(value) for value in range(flat.n_values)]
    shapes = {v: shape for v, shape in enumerate(recorded) if shape is not None}
    shapes = {v: s for v, s in shapes.items() if all(d is not None and d >= 0 for d in s)}
    if len(shapes) == len(recorded):
        return shapes
    try:
        graph, new_shapes = _inferred(flat)
    except FAILURES:
        return shapes
    if len(flat.bodies) > 1:
        new_shapes |= _inner_shapes(graph)
    for value, name in enumerate(flat.value_names):
        if value not in shapes and name in new_shapes:
            shapes[value] = new_shapes[name]
    return shapes


def _inferred(flat: FlatGraph) -> tuple[onnx.GraphProto, dict[str, Shape]]:
    """Return the main graph with what inference finds, by a length that no window exceeds.

    And the shapes of its values, by name; those inside its nodes are in the graph alone.
    """
    graph, shapes, names = onnx.GraphProto(), dict[str, Shape](), {*flat.value_names}
    for length in LENGTHS:
        model, too_short = _slim(flat, length), False
        if len(flat.bodies) > 1:
            hand_down(model.graph, {})
        for _ in range(_ROUNDS):
            graph = inferred(model).graph
            shapes, too_short = _shapes(graph)
            shapes |= {tensor.name: tensor.dims for tensor in graph.initializer}
            if names <= shapes.keys() or not _compute_shapes(model, shapes):
                break
        if not too_short:
            break
    return graph, shapes


def _compute_shapes(model: onnx.ModelProto, shapes: Mapping[str, Shape]) -> bool:
    """Make initializers of what a main graph computes of shapes alone; tell whether any is new."""
    graph = model.graph
    if all(output in shapes for node in graph.node for output in node.output):
        return False
    constants = [_shape_of(n, shapes) for n in graph.node if n.op_type == "Shape"]
    constants = [tensor for tensor in constants if tensor is not None]
    computable = {tensor.name for tensor in (*graph.initializer, *constants)}
    steps, kinds = list[onnx.NodeProto](), frozenset(_OF_SHAPES.split())
    for node in graph.node:
        input_names = {name for name in node.input if name}
        if is_elsewhere(node):
            continue  # the evaluator would look for a file of that name in the current folder
        if node.domain or node.op_type not in kinds or not computable.issuperset(input_names):
            continue
        if node.op_type in _GROWING:  # known from the round before, or in the next
            shape = shapes.get(node.output[0], (_LARGEST + 1,))
            size = math.prod(length or 0 for length in shape)
            if size > _LARGEST:
                continue
        steps.append(node)
        computable |= {*node.output}
    names = [name for node in steps if node.op_type != "Constant" for name in node.output]
    if names:
        # imported here: it is slow to import, and most models need it for nothing
        from onnx.reference import ReferenceEvaluator

        wanted = [onnx.ValueInfoProto(name=name) for name in names]
        part = onnx.helper.make_graph(steps, "shapes", [], wanted, [*graph.initializer, *constants])
        runner = ReferenceEvaluator(onnx.helper.make_model(part, opset_imports=model.opset_import))
        results = zip(names, runner.run(None, {}), strict=True)
        constants += [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in results]
    done = {tensor.name for tensor in constants}
    left = [node for node in graph.node if done.isdisjoint(node.output)]
    del graph.node[:]
    graph.node.extend(left)
    graph.initializer.extend(constants)
    return bool(constants)


def _shape_of(node: onnx.NodeProto, shapes: Mapping[str, Shape]) -> onnx.TensorProto | None:
    """Return the result of a Shape, None if it is not known."""
    shape, ends = shapes.get(node.input[0]), {a.name: a.i for a in node.attribute}
    if shape is None:
        return None
    held = np.array(shape, np.int64)[ends.get("start", 0) : ends.get("end")]
    return onnx.numpy_helper.from_array(held, node.output[0])


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
        stored = {v for body in flat.bodies for v in body.initializers}
        stored |= {v for n in flat.nodes_of("Constant") for v in flat.outputs_of(n)}
        for node in range(flat.n_nodes):
            missing = [v for v in flat.outputs_of(node) if v not in shapes]
            if missing:
                most = _guess(flat, node, counts, stored)
                for value in missing:
                    counts[value] = most
    return np.array(counts, np.int64)


def _guess(flat: FlatGraph, node: int, counts: Sequence[int], stored: Collection[int]) -> int:
    """Return how many elements a result has that inference does not know.

    Products make rows as long as their weights', look-ups as long as those of their table.
    """
    inputs = [v for v in flat.inputs_of(node) if v != ABSENT]
    computed = [v for v in inputs if v not in stored] or inputs
    most = max((counts[v] for v in computed), default=1)
    tables = [flat.shape(v) or () for v in inputs if v in stored]
    matrices = [(s[0] or 0, s[1] or 0) for s in tables if len(s) == 2]
    op_type = flat.called(node).op_type
    # operators: those that look rows up.
    if op_type in ("Gather", "EmbedLayerNormalization") and matrices:
        return most * matrices[0][1]
    if op_type == "MatMul" and matrices and matrices[0][0]:
        return most // matrices[0][0] * matrices[0][1]
    return most


def _slim(flat: FlatGraph, free: int) -> onnx.ModelProto:
    """Return the model without its weights and without shapes that have a free dimension.

    `free` is what a free dimension counts that is not the first one of an input.
    """
    if isinstance(flat, FlatProto):
        proto = without_weights(flat)
    else:
        from amp_rewrite.graph.io.inferred_shapes import (
            slim_proto,  # with onnx_ir, which files do not need
        )

        proto = slim_proto(cast("FlatModel", flat).model)
    # Up to version 3 inference takes no initializer that is not an input as well.
    proto.ir_version = max(proto.ir_version, FIRST_IR_WITH_OVERRIDES)
    del proto.graph.value_info[:]
    for info in proto.graph.output:
        info.type.tensor_type.ClearField("shape")
    lengths: dict[str, int] = {}
    said = flat.metadata_props.get(BATCH_KEY, "")
    batch = int(said) if said.isdecimal() else BATCH
    for info in proto.graph.input:
        _assume(info, lengths, (batch, free))
    return proto


def _assume(info: onnx.ValueInfoProto, lengths: dict[str, int], free: tuple[int, int]) -> None:
    """Give an input's free dimensions a length, the first and the others; equal names one."""
    if not info.type.HasField("tensor_type"):
        return
    for axis, dim in enumerate(info.type.tensor_type.shape.dim):
        if not dim.HasField("dim_value") or dim.dim_value < 0:  # -1 says that it is free, too
            length = free[min(axis, 1)]
            dim.dim_value = lengths.setdefault(dim.dim_param, length) if dim.dim_param else length


def _shapes(graph: onnx.GraphProto) -> tuple[dict[str, Shape], bool]:
    """Return the known shapes of a graph's values by name; those inside its nodes are left out.

    And whether a tensor has less than no elements: a window was longer than what it is on. Equal
    types, of which there are few, are read once.
    """
    read: dict[bytes, Shape | None] = {}
    shapes = dict[str, Shape]()
    too_short = False
    for info in (*graph.input, *graph.output, *graph.value_info):
        spelled = info.type.SerializeToString()
        if spelled not in read:
            read[spelled] = _static(info.type)
            too_short |= any(dim.dim_value < 0 for dim in info.type.tensor_type.shape.dim)
        shape = read[spelled]
        if shape is not None:
            shapes[info.name] = shape
    return shapes, too_short


def _inner_shapes(graph: onnx.GraphProto) -> dict[str, Shape]:
    """Return the known shapes of the values of all graphs inside a graph's nodes."""
    shapes = dict[str, Shape]()
    for body in (body for node in graph.node for body in graphs_of(node)):
        shapes |= _shapes(body)[0] | _inner_shapes(body)
    return shapes


def _static(type_: onnx.TypeProto) -> Shape | None:
    """Return the shape of a tensor's type, None if it does not have all lengths."""
    if not type_.HasField("tensor_type") or not type_.tensor_type.HasField("shape"):
        return None
    dims = type_.tensor_type.shape.dim
    lengths = [d.dim_value if d.HasField("dim_value") else -1 for d in dims]
    return lengths if min(lengths, default=0) >= 0 else None
