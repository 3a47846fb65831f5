"""From a model and the options of a rewrite to what its painting knows, and to its painting."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

from amp_rewrite import targets
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.elements import tensor as tensor_type
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.step_metadata import state_names
from amp_rewrite.kernels import fusions, rounding_table
from amp_rewrite.kernels.accumulation import (
    operators_adding_fused,
    operators_adding_in,
    operators_computing_in,
)
from amp_rewrite.kernels.kernel_table import table_of
from amp_rewrite.oplists import OpLists, load_lists
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.given_notes import given_mask
from amp_rewrite.rewriting.paint.groups import fused_groups
from amp_rewrite.rewriting.paint.node_rules import NOTHING_FOUND, Findings
from amp_rewrite.rewriting.paint.pipeline import PaintResult, paint
from amp_rewrite.rewriting.paint.ties import variable_ties
from amp_rewrite.rewriting.paint.value_facts import ValueFacts
from amp_rewrite.rewriting.paint.wide_ends import wide_ends
from amp_rewrite.rewriting.plan.input_ranges import input_intervals
from amp_rewrite.rewriting.plan.options import KEEP, RewriteOptions
from amp_rewrite.rewriting.rules.own_rules import with_rules

_KEPT = 2
"""How many paintings of a model are kept: without findings, and with the last ones."""


@dataclass
class _Paintings:
    """The painting of a model under some lists and options.

    Attributes:
        asked: The options, without what no painting depends on, and the lists.
        painted: The last paintings, with their findings.
    """

    asked: tuple[RewriteOptions, OpLists]
    context: PaintContext
    painted: list[tuple[Findings, PaintResult]] = field(default_factory=list)


def paint_context(
    model: FlatGraph, lists: OpLists, options: RewriteOptions, found: Findings = NOTHING_FOUND
) -> PaintContext:
    """Return what the painting of a model knows; `lists` are those of `lists_of`."""
    asked = replace(options, lists=None, strict=False, overflow=KEEP), lists
    known = model.paintings
    if not (isinstance(known, _Paintings) and known.asked == asked):
        known = _Paintings(asked, _new_context(model, lists, options))
        model.paintings = known
    context = known.context
    if not context.only_low:
        found = replace(found, measured=False)
    return context if found == NOTHING_FOUND else context.with_findings(found)


def painted(context: PaintContext) -> PaintResult:
    """Paint a model, as `paint` does; one that was painted so is not painted again."""
    flat = context.type_graph.flat
    known = flat.paintings
    if not isinstance(known, _Paintings) or not _is_of(known, context):
        return paint(context)
    for found, result in known.painted:
        if found == context.found:
            return result
    result = paint(context)
    known.painted = [*known.painted[-_KEPT + 1 :], (context.found, result)]
    return result


def _is_of(known: _Paintings, context: PaintContext) -> bool:
    return context.values is known.context.values and not (context.excluded or context.joined)


def _new_context(model: FlatGraph, lists: OpLists, options: RewriteOptions) -> PaintContext:
    target = targets.find(options.chosen_target)
    kernels = table_of(target)
    type_graph = build_type_graph(model, variable_ties(kernels, options.low))
    table = fusions.of_target(target)
    rounding = rounding_table.of_target(target)
    names = {*options.variables, *state_names(model)}
    variables = frozenset(v for v in model.main.inputs if model.value_names[v] in names)
    inputs = input_intervals(options.ranges, type_graph)
    low_before = given_mask(type_graph)
    # A second rewrite is to find what the first did; a node that a 16-bit file computes low is not
    # raised for what its inputs might hold.
    values = ValueFacts(type_graph, options.low, inputs, variables, low_inputs=low_before is None)
    context = PaintContext(
        type_graph,
        lists,
        options.low,
        kernels,
        options.node_rules,
        infer_after_allow=options.infer_after_allow,
        variables=variables,
        converts_weights=options.weights == "convert",
        moves_casts=options.move_casts,
        adds_low=operators_adding_in(target, options.low),
        adds_fused=operators_adding_fused(target, options.low),
        indexes_low=operators_computing_in(target, options.low, "indices"),
        squares_low=operators_computing_in(target, options.low, "variances"),
        low_ends=low_ends(type_graph, options),
        groups=fused_groups(type_graph, table, options.low),
        cut={} if rounding is None else rounding.cut,
        given=low_before,
        only_low=options.only is not None,
        target=target,
        values=values,
    )
    wide = wide_ends(context, context.low_ends)
    context = replace(context, low_ends=context.low_ends.difference(wide), wide_ends=wide)
    return with_rules(context, options.rules) if options.rules else context


def lists_of(options: RewriteOptions) -> OpLists:
    """Read the op lists of a rewrite, with environment and level applied.

    Raises:
        AmpError: A list, the level or an environment variable is wrong.
    """
    if isinstance(options.lists, OpLists):
        op_lists = options.lists.configured(options.level, os.environ)
    else:
        op_lists = load_lists(
            options.lists,
            precision=options.precision,
            target=options.chosen_target,
            level=options.level,
        )
    return op_lists.allowing(options.allow_ops).denying(options.deny_ops)


def low_ends(type_graph: TypeGraph, options: RewriteOptions) -> frozenset[int]:
    """Return the float32 graph inputs and outputs that give up their type if anything does."""
    if options.keep_io_types is True:
        return frozenset()
    flat = type_graph.flat
    return frozenset(
        v
        for v in (*flat.main.inputs, *flat.main.outputs)
        if type_graph.types[v] == tensor_type(FLOAT32.number)
        and not options.keeps_type(flat.value_names[v])
        and not flat.is_initializer(v)
    )
