"""Declared shapes that contradict what inference finds: onnx's version converter fails on them.

Paddle's exporter declares outputs of PP-OCRv5 with rank 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from amp_rewrite.graph.io.typeproto import read_shape
from amp_rewrite.graph.io.write import slim_proto
from amp_rewrite.graph.proto.shape_inference import FAILURES, inferred


def mend_shapes(model: ir.Model) -> tuple[str, ...]:
    """Give values of the main graph the shapes that inference finds, in place.

    That is done where a declared shape of an output or of a value inside contradicts the inferred
    one: its rank, or a length, differs. Inputs are trusted, and so is an initializer that is an
    output as well: onnx reads no axes from one without a shape. The large weights are not read.

    Returns:
        The names of these values; none where inference fails without the declared shapes, too.
    """
    proto = slim_proto(model)
    made = {value.name: value for node in model.graph for value in node.outputs}
    del proto.graph.value_info[:]
    for info in (info for info in proto.graph.output if info.name in made):
        info.type.tensor_type.ClearField("shape")
    try:
        found = inferred(proto).graph
    except FAILURES:
        return ()
    mended = list[str]()
    for info in (*found.value_info, *found.output):
        value, leaf = made.get(info.name), info.type.tensor_type
        if value is not None and value.shape is not None and leaf.HasField("shape"):
            shape = read_shape(leaf.shape)
            if _contradict(value.shape.dims, shape.dims):
                value.shape = shape
                mended.append(info.name)
    return tuple(mended)


def _contradict(one: Sequence[object], other: Sequence[object]) -> bool:
    """Tell whether no tensor has both shapes."""
    lengths = zip(one, other, strict=False)
    return len(one) != len(other) or any(
        a != b for a, b in lengths if isinstance(a, int) and isinstance(b, int)
    )
