"""Declared shapes that contradict what inference finds: onnx's version converter fails on them.

Paddle's exporter declares outputs of PP-OCRv5 with rank 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx.shape_inference
import onnx_ir as ir

from amp_rewrite.graph.io.inferred_shapes import slim_proto
from amp_rewrite.graph.proto.messages import shape_of
from amp_rewrite.graph.proto.missing_shapes import FAILURES


def mend_shapes(model: ir.Model) -> tuple[str, ...]:
    """Give values of the main graph the shapes that inference finds, in place.

    That is done where a declared shape of an output or of a value inside contradicts the inferred
    one: its rank, or a length, differs. Inputs are trusted, and so is an initializer that is an
    output as well: onnx reads no axes from one without a shape. The large weights are not read.

    Returns:
        The names of these values; none where inference fails without the declared shapes, too.
    """
    proto = slim_proto(model)
    graph = proto.graph
    infos = (*graph.output, *graph.value_info)
    declared = {info.name: shape for info in infos if (shape := shape_of(info)) is not None}
    del graph.value_info[:]
    given = {value.name for value in (*graph.initializer, *graph.input)}
    for info in (info for info in graph.output if info.name not in given):
        info.type.tensor_type.ClearField("shape")
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph
    except FAILURES:
        return ()
    found = {info.name: info for info in (*inferred.value_info, *inferred.output)}
    wrong = {
        name: found[name]
        for name, shape in declared.items()
        if name in found and _contradict(shape, shape_of(found[name]))
    }
    values = {value.name: value for node in model.graph for value in node.outputs}
    mended = [name for name in wrong if name in values]
    for name in mended:
        values[name].shape = _shape(wrong[name])
    return tuple(mended)


def _contradict(one: Sequence[int | None], other: Sequence[int | None] | None) -> bool:
    """Tell whether no tensor has both shapes."""
    if other is None:
        return False
    known = zip(one, other, strict=False)
    return len(one) != len(other) or any(
        a != b for a, b in known if a is not None and b is not None
    )


def _shape(info: onnx.ValueInfoProto) -> ir.Shape:
    dims = info.type.tensor_type.shape.dim
    return ir.Shape([d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in dims])
