"""Gradients as users hold them, and in the graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import onnx_ir as ir

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.rule import IndexedSlices
from amp_rewrite.grad.scatter import scatter_rows
from amp_rewrite.training.graph.training_graph import GraphValue, TrainingGraph

Gradient: TypeAlias = GraphValue | IndexedSlices | None
"""A value, IndexedSlices whose fields are values, or None: as users hold it."""
Raw: TypeAlias = ir.Value | IndexedSlices
"""The same in the graph."""


def wrap(graph: TrainingGraph, gradient: Raw | None) -> Any:
    """Return a gradient as users hold it."""
    if gradient is None:
        return None
    if isinstance(gradient, IndexedSlices):
        fields = (None if field is None else GraphValue(graph, field) for field in gradient)
        return IndexedSlices(*fields)  # pyright: ignore[reportArgumentType] the fields of users' slices are handles
    return GraphValue(graph, gradient)


def unwrap(gradient: object) -> Raw:
    """Return a gradient in the graph."""
    if isinstance(gradient, IndexedSlices):
        shape = None if gradient.dense_shape is None else _value(gradient.dense_shape)
        return IndexedSlices(_value(gradient.values), _value(gradient.indices), shape)
    return _value(gradient)


def _value(reference: object) -> ir.Value:
    if isinstance(reference, GraphValue):
        return reference.value
    if isinstance(reference, ir.Value):
        return reference
    raise OptimizerTypeError(
        "a gradient must be a value, IndexedSlices or None", found=type(reference).__name__
    )


def graph_of(gradients: Iterable[Any]) -> TrainingGraph | None:
    """Return the training graph of gradients as users hold them; None if all are None."""
    held: list[Any] = []
    for gradient in gradients:
        held.extend(gradient if isinstance(gradient, IndexedSlices) else (gradient,))
    graph = next((each.graph for each in held if isinstance(each, GraphValue)), None)
    if graph is None:
        return None
    for each in held:
        value = each.value if isinstance(each, GraphValue) else each
        home = value.graph if isinstance(value, ir.Value) else None
        if home is not None and home is not graph.model.graph:
            raise OptimizerValueError(
                "gradients of two models cannot meet",
                where=each.name,
                found="a value of another model than the first one's",
                remedy="make one call for each model",
            )
    return graph


def summed(b: Builder, slices: IndexedSlices) -> IndexedSlices:
    """Return slices with sorted, unique indices; values of equal indices are added."""
    producer = slices.indices.producer()
    if producer is not None and producer.op_type == "Unique" and slices.indices.index() == 0:
        return slices
    unique, _, inverse = b.op("Unique", slices.indices, outputs=3, sorted=1)
    shape = b.concat([b.shape(unique), b.slice(b.shape(slices.values), [1], [2**31])], 0)
    zeros = b.zeros(shape, b.type_of(slices.values))
    return IndexedSlices(scatter_rows(b, zeros, inverse, slices.values), unique, slices.dense_shape)


def merged(b: Builder, gradient: Raw, *, rows_only: bool) -> Raw:
    """Return a gradient whose indices do not repeat: summed slices if `rows_only`, else dense."""
    if isinstance(gradient, IndexedSlices) and rows_only:
        return summed(b, gradient)
    return dense(b, gradient)


def dense(b: Builder, gradient: Raw) -> ir.Value:
    """Return a gradient as one tensor."""
    if isinstance(gradient, ir.Value):
        return gradient
    if gradient.dense_shape is None:
        raise OptimizerValueError(
            "IndexedSlices without a dense_shape, which this needs", where=gradient.values.name
        )
    zeros = b.zeros(gradient.dense_shape, b.type_of(gradient.values))
    return scatter_rows(b, zeros, gradient.indices, gradient.values)


def values_of(gradient: Raw) -> ir.Value:
    """Return the tensor with the numbers of a gradient."""
    return gradient.values if isinstance(gradient, IndexedSlices) else gradient


def with_values(gradient: Raw, values: ir.Value) -> Raw:
    """Return a gradient with other numbers at the same places."""
    return gradient._replace(values=values) if isinstance(gradient, IndexedSlices) else values
