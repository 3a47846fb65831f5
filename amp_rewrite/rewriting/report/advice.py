"""Advice on a model: a newer opset, at which more of it can be low."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from amp_rewrite.dtypes import LOW
from amp_rewrite.graph import schemas
from amp_rewrite.graph.elements import tensor
from amp_rewrite.graph.versions import OLDEST_REWRITABLE_OPSET
from amp_rewrite.oplists import ListName
from amp_rewrite.rewriting.paint.context import PaintContext, admitting_opset, low_types
from amp_rewrite.rewriting.paint.painting import Painting, Reason
from amp_rewrite.rewriting.report.arithmetic_share import multiply_accumulates
from amp_rewrite.rewriting.report.records import OpsetAdvice

_TOO_OLD = (Reason.TYPE_UNSUPPORTED, Reason.OPSET_TOO_OLD)

_LEAST_GAIN = 0.01
"""The share of the arithmetic that is worth another opset."""


def advised_opset(context: PaintContext, painting: Painting) -> OpsetAdvice | None:
    """Return the oldest opset at which most of the arithmetic could be in 16 bits.

    Counted are the multiply-accumulates of allow-list operators of ai.onnx whose schema admits the
    type at a newer opset only, where the target has a kernel. Those that the model computes in 16
    bits already count as well, so that a second rewrite advises what the first one did. An opset at
    which an operator loses its kernel is advised only where there is no other one.

    Returns:
        The opset, the share that could be in 16 bits then, and what loses its kernel; None where
        the share is not 1 % more than now.
    """
    needed = _needed_opsets(context)
    if not needed:
        return None
    graph, waiting = context.type_graph, dict[int, float]()
    low = sum(multiply_accumulates(graph.flat, node) for node in _low_already(context))
    total = low
    for node in dict.fromkeys(graph.nodes):
        entry = context.entry(node)
        if entry is None or entry.list is not ListName.ALLOW:
            continue
        work = multiply_accumulates(graph.flat, node)
        total += work
        vertices = graph.vertices_of(node)
        opsets = [needed[k] for v in vertices if (k := int(graph.kind[v])) in needed]
        if any(painting.is_allow(v) for v in vertices):
            low += work
        elif opsets:
            waiting[min(opsets)] = waiting.get(min(opsets), 0.0) + work
    offers: list[OpsetAdvice] = []
    for opset in sorted(waiting, reverse=True):
        gained = sum(work for needed_, work in waiting.items() if needed_ <= opset)
        if gained >= _LEAST_GAIN * total:
            lost = _lost_kernels(context, opset)
            offers.append(OpsetAdvice(opset, (low + gained) / total, lost))
    return next((offer for offer in offers if not offer.lost), offers[0] if offers else None)


# operators: those that the runtime takes out of a model, so that they need no kernel.
_TAKEN_OUT = frozenset({"Dropout", "Identity"})


def _lost_kernels(context: PaintContext, opset: int) -> tuple[str, ...]:
    """Return the operators that the target has a kernel for now, and none at another opset."""
    kernels, graph = context.kernels, context.type_graph
    if kernels is None:
        return ()
    now = graph.flat.opsets.get("", opset)
    called = {graph.flat.called(node)[:2] for node in range(graph.flat.n_nodes)}
    lost = {
        op
        for domain, op in called
        if not domain
        and kernels.matching(domain, op, now)
        and not kernels.matching(domain, op, opset)
    }
    for kind in graph.kinds:
        domain, op, _ = kind.operator
        types = low_types(kind.known, (), context.low)
        before, after = (kernels.has_kernel(domain, op, o, types) for o in (kind.opset, opset))
        if not domain and before and not after:
            lost.add(op)
    return tuple(sorted(lost - _TAKEN_OUT))


def _low_already(context: PaintContext) -> Iterator[int]:
    """Yield the allow-list nodes that the model itself computes in 16 bits."""
    graph, flat = context.type_graph, context.type_graph.flat
    types = {tensor(dtype.number) for dtype in LOW.values()}
    for node in range(flat.n_nodes):
        outputs = flat.outputs_of(node)
        if outputs and graph.types[outputs[0]] in types:
            entry = context.entry(node)
            if entry is not None and entry.list is ListName.ALLOW:
                yield node


def _needed_opsets(context: PaintContext) -> dict[int, int]:
    """Return, by kind of vertex, the opset at which it can be low, of those too old for it."""
    graph = context.type_graph
    opset_of: dict[int, int] = {}
    numbers, firsts = np.unique(graph.kind, return_index=True)
    for number, first in zip(numbers.tolist(), firsts.tolist(), strict=True):
        kind, reason = graph.kinds[number], context.unsupported(first)
        if reason not in _TOO_OLD or kind.operator.domain != "":
            continue
        opset = admitting_opset(kind, context.low)
        if opset is None:
            continue
        opset = max(opset, _oldest_of_casts(context))
        types = low_types(kind.known, kind.variables, context.low)
        domain, op_type, _ = kind.operator
        kernels = context.kernels
        if kernels is None or kernels.has_kernel(domain, op_type, opset, types):
            opset_of[number] = opset
    return opset_of


def _oldest_of_casts(context: PaintContext) -> int:
    """Return the first opset that can be rewritten and whose Cast gives the low type."""
    wanted = tensor(context.low.number)
    opset = OLDEST_REWRITABLE_OPSET
    while (cast := schemas.find("", "Cast", opset)) and wanted not in cast.variables["T2"]:
        opset += 1
    return opset
