"""Products of activations whose size only their quotient bounds stay float32.

Linear attention is relu(q) (relu(k)^T v) over relu(q) (relu(k)^T 1): three activations are
multiplied, over as many tokens as there are, and then divided by the same product without v. The
scale of q and k drops out of the quotient, hence no training keeps it small: EfficientViT's
products leave float16 on ordinary images, and its authors compute them in float32 on purpose
(Cai et al., "EfficientViT", 2023, https://arxiv.org/abs/2205.14756, in whose code they are cast).
An estimate, which starts from weights, cannot see that. One product over its
own norm is another matter. In bfloat16 nothing leaves the range.

Evidence: linear attention whose activations are large, float16: NaN without the pass, right with it
(tests/conformance/test_linear_attention.py).
"""

from __future__ import annotations

from amp_rewrite.dtypes import DType, may_leave_range
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.elements import FLOAT32_TYPES, tensor
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.reach import data_of
from amp_rewrite.graph.traits import Trait, has, having, operator
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason

# operators: those that leave the scale of what they read what it is.
_SCALED = having(Trait.MOVES, Trait.CASTS, Trait.CHANGES_SIGN, Trait.ADDS, Trait.SUMS_UP) | {
    *("Clip", "Max", "Mul", "Relu")
}


class KeepQuotients(PaintPass):
    """Unpaint a quotient of products of the same activations, and these products."""

    name = "keep-quotients"
    places = (
        Place(
            Stage.KEEPING,
            60,
            "products of activations that only their quotient bounds, as in linear attention",
        ),
        Place(Stage.JUDGING, 40),
    )

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting without such vertices; nodes that the user allows stay."""
        graph, marks = context.type_graph, dict[int, Mark]()
        if not may_leave_range(context.low):
            return painting
        for node in graph.flat.nodes_of("Div"):
            marks |= _marks(context, node)
        kept = {v: mark for v, mark in marks.items() if painting.is_allow(v)}
        return painting.with_marks(context.unless_allowed(kept))


def _marks(context: PaintContext, quotient: int) -> dict[int, Mark]:
    """Return the marks of a quotient, if its operands are made of the same activations."""
    graph, flat = context.type_graph, context.type_graph.flat
    first, second = flat.inputs_of(quotient)
    if constant_tensor(graph, second) is not None:
        return {}
    nodes, multiplied, factors = _computed(graph, first, context.low)
    below, _, factors_below = _computed(graph, second, context.low)
    if len(multiplied) < 2 or factors.isdisjoint(factors_below):
        return {}
    products = ", ".join(flat.node_names[n] for n in sorted(multiplied)[:3])
    detail = (
        f"nothing bounds products of activations ({products}) but their quotient "
        f"{flat.node_names[quotient]}, {context.low.name} ends at {context.low.max:.6g}"
    )
    mark = Mark(Color.NONE, Reason.LIKELY_OVERFLOW, None, detail)
    return {v: mark for n in {quotient, *nodes, *below} for v in graph.vertices_of(n)}


def _computed(graph: TypeGraph, operand: int, low: DType) -> tuple[set[int], list[int], set[int]]:
    """Return what computes an operand of a quotient, back to the factors of its products.

    Return the products of activations with what lies between them and behind, the products alone,
    and the values that are multiplied or added up. Some of it may be low already, where a model is
    rewritten again.
    """
    types = {*FLOAT32_TYPES, tensor(low.number)}
    flat, nodes, products, factors = graph.flat, set[int](), list[int](), set[int]()
    stack, seen = [(operand, False)], set[int]()
    while stack:
        value, is_factor = stack.pop()
        node = flat.producer[value]
        if value in seen or constant_tensor(graph, value) is not None:
            continue
        seen.add(value)
        if node == ABSENT:
            factors.add(value)
            continue
        called = flat.called(node)
        operands = [v for v in data_of(flat, node) if graph.types[v] in types]
        # no operand of a product of activations is a weight
        is_product = has(called, Trait.CONTRACTS) and not any(
            constant_tensor(graph, v) is not None for v in operands
        )
        if is_product:
            products.append(node)
        if is_product or not is_factor:
            nodes.add(node)
        if is_product or operator(called) in _SCALED:
            stack += [(v, is_product or is_factor) for v in operands]
        else:
            factors.add(value)
    return nodes, products, factors
