"""Constraints: what keeps a variable inside a set after each update."""

from __future__ import annotations

from typing import cast

import onnx_ir as ir

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError, UnsupportedError
from amp_rewrite.grad.rule import IndexedSlices
from amp_rewrite.graph.metadata_keys import PART_KEY
from amp_rewrite.graph.step_part import Part
from amp_rewrite.training.graph.training_graph import GraphValue, State
from amp_rewrite.training.optimizers.gradient import Raw


def check_gradient(variable: State, gradient: Raw) -> None:
    """Refuse a sparse gradient of a variable with a constraint, as TensorFlow does."""
    if variable.constraint is not None and isinstance(gradient, IndexedSlices):
        raise UnsupportedError(
            "Cannot use a constraint function on a sparse variable.",
            where=variable.name,
            found="a gradient of IndexedSlices",
            remedy="take the constraint away, or read the table by something else than Gather",
        )


def constrained(variable: State, updated: ir.Value) -> ir.Value:
    """Return what the constraint of a variable makes of its updated value.

    The nodes that it adds become part of the update, so that a skipped step skips them.
    """
    if variable.constraint is None:
        return updated
    graph = variable.graph
    before = set(graph.model.graph)
    result = cast(object, variable.constraint(GraphValue(graph, updated)))
    if not isinstance(result, GraphValue):
        raise OptimizerTypeError(
            "a constraint must return a value",
            where=variable.name,
            found=f"an object of type {type(result).__name__}",
        )
    if result.graph is not graph:
        raise OptimizerValueError(
            "a constraint returned a value of another model", where=variable.name, found=result.name
        )
    kind, expected = (result.dtype, result.shape), (variable.dtype, variable.shape)
    if kind != expected:
        raise OptimizerValueError(
            "a constraint must keep the type and the shape",
            where=variable.name,
            found=_text(result),
            expected=_text(variable),
        )
    for node in graph.model.graph:
        if node not in before:
            node.metadata_props[PART_KEY] = Part.UPDATE
    return result.value


def _text(tensor: GraphValue | State) -> str:
    lengths = "unknown lengths" if tensor.shape is None else list(tensor.shape)
    return f"{tensor.dtype.name.lower()} {lengths}"
