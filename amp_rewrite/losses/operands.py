"""What losses are computed from, and how they end."""

from __future__ import annotations

import numbers

import onnx_ir as ir

from amp_rewrite.builder.builder import Builder
from amp_rewrite.builder.known import differ
from amp_rewrite.dtypes import dtype_name
from amp_rewrite.errors import LossError
from amp_rewrite.graph.names import is_utf8
from amp_rewrite.training.training_graph import GraphValue, TrainingGraph, training_graph

NAME = "loss"
REDUCTIONS = ("mean", "sum", "none")


def operands(
    model: ir.Model,
    prediction: str | GraphValue,
    labels: str | GraphValue,
    *,
    axis: int | None = None,
) -> tuple[TrainingGraph, ir.Value, ir.Value]:
    """Return the training graph, the predictions and the labels.

    Args:
        model: The model.
        prediction: A floating-point value of it.
        labels: A value of it; a name that it does not have becomes a new input.
        axis: None gives a new input the type and shape of the predictions; otherwise it is int64
            and lacks this axis of theirs.

    Raises:
        LossError: The predictions are not floating-point or have no such axis, or a value is of
            another model or no value at all.
        UnknownValueError: The model has no value called `prediction`.
    """
    graph = training_graph(model)
    for given in (prediction, labels):
        named_or_held = isinstance(given, str | GraphValue)  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        if not named_or_held or (isinstance(given, str) and not (given and is_utf8(given))):
            raise LossError("not a value of the model", found=ascii(given), expected="its name")
    predicted = _value(graph, prediction)
    if not graph.builder.type_of(predicted).is_floating_point():
        raise LossError(
            f"Invalid type {dtype_name(graph.builder.type_of(predicted))} for predictions",
            where=predicted.name,
            expected="a floating-point value",
        )
    rank = graph.builder.rank(predicted)
    if axis is not None and rank is not None and not -rank <= axis < rank:
        raise LossError(
            "no such axis of classes",
            where=predicted.name,
            found=axis,
            expected=f"an axis of rank {rank}",
        )
    if isinstance(labels, GraphValue) or graph.has(labels):
        return graph, predicted, _value(graph, labels)
    dims = None if predicted.shape is None else list(predicted.shape.dims)
    if dims is not None and axis is not None:
        del dims[axis]
    dtype = graph.builder.type_of(predicted) if axis is None else ir.DataType.INT64
    return graph, predicted, graph.add_input(labels, dtype, dims)


def check_same_shape(b: Builder, predicted: ir.Value, labels: ir.Value) -> None:
    """Refuse labels whose shape is known to be another one: broadcasting would hide a mistake.

    Raises:
        LossError: The ranks or two static lengths differ.
    """
    left, right = b.dims(predicted), b.dims(labels)
    if left is not None and right is not None and differ(left, right):
        raise LossError(
            "labels must have the shape of the predictions",
            where=labels.name,
            found=right,
            expected=left,
        )


def check_reduction(reduction: str) -> None:
    """Refuse an unknown reduction.

    Raises:
        LossError: It is none of REDUCTIONS.
    """
    if not isinstance(reduction, str) or reduction not in REDUCTIONS:  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise LossError(
            "unknown reduction", found=repr(reduction), expected=" or ".join(REDUCTIONS)
        )


def check_integer(name: str, given: object) -> int:
    """Return an option that is an integer.

    Raises:
        LossError: It is not one that int64 holds.
    """
    number = None if isinstance(given, bool) or not isinstance(given, numbers.Integral) else given
    if number is None or not -(2**63) <= int(number) < 2**63:
        raise LossError(f"{name} must be an integer", found=repr(given), remedy="pass an int")
    return int(number)


def reduced(b: Builder, losses: ir.Value, reduction: str) -> ir.Value:
    """Return the mean or the sum of losses, float32 at least; losses themselves for "none"."""
    if reduction == "none":
        return losses
    wide = losses if b.type_of(losses).itemsize >= 4 else b.cast(losses, ir.DataType.FLOAT)
    reduce = b.reduce_mean if reduction == "mean" else b.reduce_sum
    return reduce(wide, None, keepdims=False)


def named(graph: TrainingGraph, loss: ir.Value) -> GraphValue:
    """Return a loss as users hold it, called "loss" if no other value is."""
    loss.name = graph.free_name(NAME)
    return GraphValue(graph, loss)


def _value(graph: TrainingGraph, given: str | GraphValue) -> ir.Value:
    if isinstance(given, str):
        return graph.value(given).value
    if given.graph is not graph:
        raise LossError("a value of another model", where=given.name)
    return given.value
