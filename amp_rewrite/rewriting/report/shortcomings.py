"""Shortcomings of a rewrite: rules about nodes that match nothing, what `strict` refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from amp_rewrite.base.name_patterns import did_you_mean
from amp_rewrite.base.printable import counted, few
from amp_rewrite.graph.constants import default_tensor
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.modules import all_names, nodes_by_name
from amp_rewrite.graph.traits import Trait
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.match import PRODUCTS, Chains, Demanded
from amp_rewrite.rewriting.paint.painting import Painting, Reason
from amp_rewrite.rewriting.paint.passes.keep_long_sums import is_to_name
from amp_rewrite.rewriting.report.records import UnmatchedRule
from amp_rewrite.values.magnitudes.estimate import PEAK
from amp_rewrite.values.magnitudes.estimates import Estimates

if TYPE_CHECKING:
    from amp_rewrite.rewriting.plan.casts import CastPlan
    from amp_rewrite.rewriting.report.rewrite_report import Report

_LARGE = 1024
"""Elements of weights from which on a line says that they stay float32 in the file."""

_MISSING = 1.5
_MOST = 1 << 14
"""The factor of a deviation that a layer may have, and how many values are looked at for one."""

_NEAR = 4.0
"""How far from the end of the type an estimate is that is named: it may be short of the truth."""


def unmatched_rules(context: PaintContext) -> tuple[UnmatchedRule, ...]:
    """Return the rules whose node, or whose type variable of a node, is not in the model."""
    variables = _variables(context)
    return tuple(
        UnmatchedRule(rule.node, rule.variable, rule.where)
        for rule in context.node_rules
        if rule.node not in variables or rule.variable not in (None, *variables[rule.node])
    )


def unmatched_warning(context: PaintContext) -> str | None:
    """Return one line about these rules, with what the first may have meant; None if all match."""
    rules = unmatched_rules(context)
    if not rules:
        return None
    first, variables = rules[0], _variables(context)
    if first.node in variables:
        meant = variables[first.node]
        remedy = f"of node {first.node!r} {' or '.join(meant) or 'nothing'} is float32"
    else:
        remedy = did_you_mean(first.node, all_names(context.type_graph.flat))
        remedy = remedy or "`amp-rewrite explain MODEL` lists the node names"
    count = f"{counted(len(rules), 'node rule')} {'matches' if len(rules) == 1 else 'match'}"
    return f"{count} no node of the model: {few(rules)}; {remedy}"


def _variables(context: PaintContext) -> dict[str, tuple[str, ...]]:
    """Return name -> the float32 type variables of the nodes that rules mean by it."""
    graph = context.type_graph
    named = nodes_by_name(graph.flat, (rule.node for rule in context.node_rules))
    kinds = {
        name: [graph.kind_of(vertex) for node in nodes for vertex in graph.vertices_of(node)]
        for name, nodes in named.items()
    }
    return {name: tuple(v for kind in of for v in kind.variables) for name, of in kinds.items()}


def unknown_lengths(context: PaintContext, painting: Painting) -> tuple[str, ...]:
    """Return the free dimensions of unknown length that keep sums float32."""
    graph, flat = context.type_graph, context.type_graph.flat
    kept = [v for v, mark in painting.marks.items() if mark.reason is Reason.LONG_SUM]
    is_unknown = any(is_to_name(flat, int(graph.node[v])) for v in kept)
    return flat.unknown_lengths if is_unknown else ()


def first_likely_overflow(context: PaintContext) -> str | None:
    """Return the first node that an estimate keeps float32, and why."""
    kept = (v for v, m in context.excluded.items() if m.reason is Reason.LIKELY_OVERFLOW)
    first = min(kept, default=None)
    if first is None:
        return None
    return f"{context.type_graph.node_name(first)} stays float32: {context.excluded[first].detail}"


def cast_defaults(context: PaintContext, plan: CastPlan) -> str | None:
    """Return one line about large weights that are inputs as well, and so are cast at each run."""
    flat, read = context.type_graph.flat, dict.fromkeys(cast.value for cast in plan.casts)
    sizes = {
        flat.value_names[value]: tensor.size
        for value in read
        if value not in context.variables
        and (tensor := default_tensor(context.type_graph, value)) is not None
    }
    if sum(sizes.values()) < _LARGE:
        return None
    first, count = next(iter(sizes)), len(sizes)
    some = "1 weight is an input" if count == 1 else f"{count:,} weights are inputs"
    named = first if count == 1 else f"the first is {first}"
    return (
        f"{some} of the model with a default ({named}), which a caller may override: the file "
        f"keeps {'it' if count == 1 else 'them'} in float32 and casts at each run; `python -m "
        "onnxruntime.tools.remove_initializer_from_input` makes constants of such inputs, which "
        "are converted"
    )


class _Doubts(Demanded[int]):
    """How far an estimate may fall short: by the sums of products in a row in front of a value.

    Estimates halve the deviation with each sum, so that they raise no false alarm. Trained weights
    without a normalization between them multiply a deviation by 1.5 a layer. Ten convolutions that
    triple it reach 169,000; the estimate is 906, and 30,000 with this.
    """

    most = _MOST

    def __init__(self, m: Chains, estimates: Estimates) -> None:
        """Know nothing yet."""
        super().__init__()
        self._m, self._estimates = m, estimates

    def operands(self, value: int) -> Sequence[int]:
        """Return what a value grows with."""
        m, node = self._m, self._m.maker(value)
        grows = m.op(node) in PRODUCTS or m.has(node, Trait.HOMOGENEOUS) or m.is_a(node, "Mul")
        return [v for v in m.data(node) if not m.is_constant(v)] if grows else ()

    def transfer(self, value: int, operands: Sequence[int | None]) -> int:
        """Return the number of a value by those of its operands."""
        node = self._m.maker(value)
        is_layer = node != ABSENT and self._m.op(node) in PRODUCTS
        return max((n or 0 for n in operands), default=0) + is_layer

    def largest(self, value: int) -> float:
        """Return what a value may reach if its estimate falls short; 0 if nothing is known."""
        estimate, layers = self._estimates[value], self[value] or 0
        return 0.0 if estimate is None else PEAK * estimate.spread * _MISSING**layers


def near_end(context: PaintContext, painting: Painting) -> str | None:
    """Return the 16-bit value that an estimate says to come nearest to the end of the type."""
    low, graph, values = context.low, context.type_graph, context.values
    doubts = _Doubts(values.match, values.estimates)
    near = [
        (reached, value)
        for value, likely in values.likely.items()
        if painting.is_allow(graph.source[value])
        and (reached := max(likely, doubts.largest(value))) >= low.overflow / _NEAR
    ]
    if not near:
        return None
    largest, value = max(near)
    return (
        f"{graph.flat.value_names[value]} may reach {largest:.2g} by an estimate, more than a "
        f"quarter of {low.name}'s limit of {low.max:g}"
    )


def shortcomings(report: Report) -> tuple[str, ...]:
    """Return one line for everything that keeps a rewrite from being complete, as `strict` asks."""
    lines: list[str] = []
    if not report.summary.nodes_converted:
        lines.append("nothing was converted: the model has no allow-list operator that could be")
    lines += [
        f"no op list knows {name} ({counted(count, 'node')}); put it on a list, or on `unlisted` "
        "with a reason"
        for name, count in report.boundaries.items()
    ]
    missing = {
        node.op
        for node in report.nodes
        if node.list == "allow"
        and any(v.reason == Reason.NO_KERNEL for v in node.variables.values())
    }
    what = f"target {report.target} has no {report.precision} kernel for"
    return (*lines, *(f"{what} {op}" for op in sorted(missing)))
