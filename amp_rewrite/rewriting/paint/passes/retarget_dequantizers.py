"""Weights of 8 bits or fewer become low where all that reads them is: their scales are converted.

A Cast behind DequantizeLinear would convert every weight at each run, and keep ONNX Runtime from
fusing it with its MatMul into one operator (MatMulNBits), which it does for float16 scales.

Evidence: a MatMul with int4 weights in float16: without the pass a Cast converts every weight at
each run (tests/conformance/test_weight_only_quantization.py).
"""

from __future__ import annotations

from amp_rewrite.graph.constants import constant_tensor, stored_tensor
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import Place, Stage, paints
from amp_rewrite.rewriting.paint.painting import Color, Mark, Marks, Painting, Reason


@paints("retarget-dequantizers", Place(Stage.COLORING, 100))
def retarget_dequantizers(context: PaintContext, painting: Painting) -> Marks:
    """Paint a DequantizeLinear of constants all of whose readers are low."""
    graph, flat = context.type_graph, context.type_graph.flat
    marks: dict[int, Mark] = {}
    nodes = context.values.match.nodes("DequantizeLinear", "com.microsoft::DequantizeLinear")
    for node in (n for n in nodes if may_be_low(context, n)):
        (value,) = flat.outputs_of(node)
        readers = [] if flat.is_output(value) else graph.readers(value)
        if readers and all(painting.is_allow(v) for v in readers):
            mark = Mark(Color.ALLOW, Reason.LOW_SCALES, readers[0])
            marks |= dict.fromkeys(graph.vertices_of(node), mark)
    return marks


def may_be_low(context: PaintContext, node: int) -> bool:
    """Tell whether a DequantizeLinear may give the low type, with scales in it.

    Weight, scale and zero point are constants of the file; the target has a kernel; no scale loses
    more to rounding than the tolerance of the low type; and no weight is out of its range.
    """
    graph, flat = context.type_graph, context.type_graph.flat
    vertices = graph.vertices_of(node)
    if not vertices or not all(context.processable[v] and context.supported[v] for v in vertices):
        return False
    data, scale, *rest = flat.inputs_of(node)
    if any(stored_tensor(flat, v) is None for v in (data, *rest) if v != ABSENT):
        return False
    tensor = constant_tensor(graph, scale)
    if tensor is None:
        return False
    low, stats = context.low, context.values.stats(scale, tensor)
    smallest = stats.smallest_nonzero_abs
    kept = smallest is None or smallest * low.rtol >= low.smallest_subnormal / 2
    largest = context.values.intervals[flat.outputs_of(node)[0]].magnitude
    return kept and not stats.infs and largest < low.overflow
