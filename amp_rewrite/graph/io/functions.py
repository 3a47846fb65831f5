"""Model-local functions: checks on all of them together, and their bodies in place of calls."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import onnx_ir as ir
from onnx_ir.passes import PassError
from onnx_ir.passes.common import InlinePass

from amp_rewrite.errors import GraphError
from amp_rewrite.graph.io.gate import admit
from amp_rewrite.graph.io.read_object import number_object
from amp_rewrite.graph.schemas import has_kernels


def inline(model: ir.Model, criteria: Callable[[ir.Function], bool] | None = None) -> None:
    """Replace calls of functions that meet `criteria` by their bodies, in place.

    By default these are all but those that only stand behind a kernel: runtimes never run them.

    Raises:
        GraphError: A body cannot stand in the model, which is then of no use any more: it has
            another opset, for example, or needs an attribute that a call does not give.
    """
    opsets = model.graph.opset_imports
    criteria = criteria or (lambda function: not has_kernels(*function.identifier(), opsets))
    chosen = {key: function for key, function in model.functions.items() if criteria(function)}
    if not chosen:
        return
    graphs = (model.graph, *model.functions.values())
    try:
        for node in chain.from_iterable(graph.all_nodes() for graph in graphs):
            function = chosen.get(node.op_identifier())
            if function is not None:  # the pass wants a call to name every output
                _check_outputs(node, function)
                node.resize_outputs(len(function.outputs))
        InlinePass(criteria)(model)
    except (PassError, ValueError) as error:
        raise GraphError(
            "the model-local functions cannot be inlined",
            found=error.__cause__ or error,
            remedy="inline them before, for example with onnx.inliner",
        ) from error
    admit(number_object(model))


def _check_outputs(call: ir.Node, function: ir.Function) -> None:
    """Refuse a call that would lose outputs with its operator's place: the operator makes more."""
    if len(call.outputs) > len(function.outputs):
        raise GraphError(
            f"the function {function.name} has fewer outputs than a call of it",
            where=call.name,
            found=len(function.outputs),
            expected=len(call.outputs),
            remedy="remove the function, or give it all outputs of the operator",
        )
