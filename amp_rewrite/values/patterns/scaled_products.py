"""Factors that a runtime takes into the matrix product behind them: (a * s) @ (b * t)."""

from __future__ import annotations

from collections.abc import Iterator

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.values.patterns.library import is_single
from amp_rewrite.values.patterns.plain_view import PlainView

NAME = "ScaledMatMul"
"""The name of a product with such factors in tables of fusions."""

# What runtimes take into a product, and which of its operands may be the factor.
_FACTORS = {"Mul": slice(0, 2), "Div": slice(1, 2)}


def scaled_operands(type_graph: TypeGraph) -> Iterator[tuple[int, int]]:
    """Yield the nodes that multiply an operand of a matrix product by a number, with the product.

    Such a node is a Mul or Div by a constant of one element; nothing but the product reads it.

    A Transpose may stand in between: runtimes take it into the product first.
    """
    flat = type_graph.flat
    if not _FACTORS.keys() & {called.op_type for called in flat.operators}:
        return
    view = PlainView(type_graph)
    for product in flat.nodes_of("MatMul"):
        for value in dict.fromkeys(flat.inputs_of(product)):
            scale = _maker(view, value, product)
            if scale != ABSENT and _is_scale(view, scale):
                yield scale, product


def _maker(view: PlainView, value: int, reader: int) -> int:
    """Return the node that makes a value for one reader alone, before any Transpose, or ABSENT."""
    flat, maker = view.type_graph.flat, view.maker(value)
    if maker == ABSENT or flat.called(maker).domain != "":
        return ABSENT
    source = view.source(value)
    if view.leaves(source) or any(r.node != reader for r in view.readers(source)):
        return ABSENT
    if flat.called(maker).op_type == "Transpose":
        return _maker(view, flat.inputs_of(maker)[0], maker)
    return maker


def _is_scale(view: PlainView, node: int) -> bool:
    """Tell whether a node is a Mul by a constant of one element, or a Div by one."""
    flat = view.type_graph.flat
    ports = _FACTORS.get(flat.called(node).op_type, slice(0))
    return any(is_single(view, view.source(value)) for value in flat.inputs_of(node)[ports])
