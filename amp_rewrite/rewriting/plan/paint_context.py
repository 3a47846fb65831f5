"""From a model and the options of a rewrite to what its painting knows."""

from __future__ import annotations

import os
from dataclasses import replace

from amp_rewrite import targets
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.elements import tensor as tensor_type
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.step_metadata import state_names
from amp_rewrite.kernels import fusions, rounding_table
from amp_rewrite.kernels.accumulation import operators_adding_fused, operators_adding_in
from amp_rewrite.kernels.kernel_table import table_of
from amp_rewrite.oplists import OpLists, load_lists
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.given_notes import given_mask
from amp_rewrite.rewriting.paint.groups import fused_groups, fused_scales
from amp_rewrite.rewriting.paint.keep_rules import kept_nodes
from amp_rewrite.rewriting.paint.ties import variable_ties
from amp_rewrite.rewriting.paint.value_facts import ValueFacts
from amp_rewrite.rewriting.plan.input_ranges import input_intervals
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.values.patterns import scaled_products


def paint_context(model: FlatGraph, lists: OpLists, options: RewriteOptions) -> PaintContext:
    """Return what the painting of a model knows; `lists` are those of `lists_of`."""
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
    return PaintContext(
        type_graph,
        lists,
        options.low,
        kernels,
        options.node_rules,
        kept_nodes(options.rules, type_graph),
        infer_after_allow=options.infer_after_allow,
        variables=variables,
        converts_weights=options.weights == "convert",
        moves_casts=options.move_casts,
        adds_low=operators_adding_in(target, options.low),
        adds_fused=operators_adding_fused(target, options.low),
        low_ends=low_ends(type_graph, options),
        groups=fused_groups(type_graph, table, options.low),
        scaled_operands=fused_scales(type_graph, table.get(scaled_products.NAME), options.low),
        cut={} if rounding is None else rounding.cut,
        given=low_before,
        target=target,
        values=values,
    )


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
    op_lists = op_lists if options.only is None else replace(op_lists, only_low=True)
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
