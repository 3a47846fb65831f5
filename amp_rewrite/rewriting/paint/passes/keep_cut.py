"""What would compute with a constant that the target cuts off stays float32.

A runtime that folds constants when it loads a model may not round their results to nearest: 1 / 6
becomes 0.16602 in place of 0.16699, and every HardSwish that divides by 6 comes out too small by
the same share. Errors that all have one sign add up over layers, roundings mostly do not. Which
operators that concerns the table of the target's rounding says; constants that the low type holds
exactly lose nothing.

Evidence: the recogniser of PP-OCRv5 in bfloat16 on OpenVINO: error 3.0 % without the pass, 1.6 %
with it; oww_embedding 1.3 % and 0.8 %.
"""

from __future__ import annotations

import numpy as np

from amp_rewrite.graph.constants import constant_tensor, is_constant
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.kernels.rounding_table import FACTOR, RECIPROCAL
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, PassReason

CONSTANT_CUT = PassReason(
    "constant-cut",
    phrase="target {target} does not round a constant to nearest",
    plain="uses a constant that target {target} truncates in {precision}",
    row="the target does not round to nearest what it computes of a constant",
)

# operators: those that multiply with an attribute.
_SLOPES = {"HardSigmoid": 0.2, "LeakyRelu": 0.01}
"""What operators multiply with by default."""


class KeepCut(PaintPass):
    """Unpaint what computes with a constant that the target cuts off."""

    name = "keep-cut"
    places = (
        Place(
            Stage.KEEPING,
            30,
            "what multiplies or divides by a constant that the target cuts off instead of "
            "rounding it, as its table of rounding says "
            "([arithmetic.md](arithmetic.md#openvino-what-is-rounded-and-what-is-cut-off)); "
            "not a Div inside GELU or behind attention scores, which OpenVINO computes "
            "otherwise",
        ),
    )
    reasons = (CONSTANT_CUT,)

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting without such vertices; nodes that the user allows stay."""
        graph, marks = context.type_graph, dict[int, Mark]()
        for op_type, what in context.cut.items():
            for node in graph.flat.nodes_of(op_type):
                lost = _lost(context, node, what)
                for vertex in graph.vertices_of(node) if lost else ():
                    if painting.is_allow(vertex) and not context.is_allowed(vertex):
                        marks[vertex] = Mark(Color.NONE, CONSTANT_CUT, None, lost)
        return painting.with_marks(marks)


def _lost(context: PaintContext, node: int, what: str) -> str:
    """Return what a node would lose, "" if it loses nothing."""
    graph, low = context.type_graph, context.low
    flat = graph.flat
    if what == FACTOR:
        return (
            "the target cuts weights times a constant off" if _scales_weights(graph, node) else ""
        )
    if what != RECIPROCAL:
        attribute = flat.attributes(node).get(what)
        factor = _SLOPES[flat.called(node).op_type] if attribute is None else float(attribute.value)
        factors, named = np.array(factor, np.float32), f"{what} {factor:.5g}"
    else:
        divisor = constant_tensor(graph, flat.inputs_of(node)[1])
        if divisor is None or _is_part(context, node):
            return ""
        numbers = divisor.numpy().astype(np.float32)
        with np.errstate(divide="ignore"):
            factors = np.float32(1) / numbers
        named = f"1 / {numbers.ravel()[0]:.5g}" if numbers.size == 1 else "1 / a constant"
    is_exact = np.array_equal(factors.astype(low.numpy).astype(np.float32), factors)
    return "" if is_exact else f"the target cuts {named} off"


def _scales_weights(graph: TypeGraph, node: int) -> bool:
    """Tell whether a Mul multiplies a product with weights by what is no power of two."""
    flat, inputs = graph.flat, graph.flat.inputs_of(node)
    factors = [tensor for v in inputs if (tensor := constant_tensor(graph, v)) is not None]
    makers = [flat.producer[v] for v in inputs if flat.producer[v] != ABSENT]
    makers = [n for n in makers if has(flat.called(n), Trait.CONTRACTS)]
    if len(factors) != 1 or not makers:
        return False
    weights = flat.inputs_of(makers[0])[1:2]
    parts, _ = np.frexp(np.abs(factors[0].numpy().astype(np.float32)))
    return any(is_constant(graph.flat, v) for v in weights) and not np.isin(parts, (0, 0.5)).all()


def _is_part(context: PaintContext, node: int) -> bool:
    """Tell whether a quotient is computed as a part of something: GELU, or scores' factor."""
    flat = context.type_graph.flat
    dividend, quotient = flat.inputs_of(node)[0], flat.outputs_of(node)[0]
    if any(flat.called(reader).op_type == "Erf" for reader in flat.readers(quotient)):
        return True
    maker = flat.producer[dividend]
    return (
        maker != ABSENT
        and has(flat.called(maker), Trait.CONTRACTS)
        and not any(is_constant(flat, v) for v in flat.inputs_of(maker))
    )
