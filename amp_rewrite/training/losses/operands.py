"""The operands and reductions of losses.

A wrong operand or option is a LossError, an unknown name an UnknownValueError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.dtypes import dtype_name
from amp_rewrite.errors import LossError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import differ
from amp_rewrite.graph.names import is_utf8
from amp_rewrite.graph.step_part import Part
from amp_rewrite.training.graph.compared import Compared, note_compared
from amp_rewrite.training.graph.training_graph import GraphValue, TrainingGraph, training_graph

NAME = "loss"
DENOMINATOR = "loss_denominator"

ValueOrName = str | GraphValue
"""A value of a model: itself, or its name."""

_REDUCTIONS = ("mean", "sum", "none")


def operands(
    model: ir.Model,
    prediction: str | GraphValue,
    labels: str | GraphValue,
    *,
    axis: int | None = None,
    like_logits: bool = True,
) -> tuple[TrainingGraph, ir.Value, ir.Value]:
    """Return the training graph, the predictions and the labels.

    Labels that the model lacks become an input like the predictions, or, if not `like_logits`,
    int64 without the axis of the classes.
    """
    graph = training_graph(model)
    for operand in (prediction, labels):
        named_or_held = isinstance(operand, str | GraphValue)  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        if not named_or_held or (isinstance(operand, str) and not (operand and is_utf8(operand))):
            raise LossError("not a value of the model", found=ascii(operand), expected="its name")
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
    if like_logits:
        dtype = graph.builder.type_of(predicted)
    else:
        dtype = ir.DataType.INT64
        if dims is not None and axis is not None:
            del dims[axis]
    return graph, predicted, graph.add_input(labels, dtype, dims)


def check_same_shape(b: Builder, predicted: ir.Value, labels: ir.Value) -> None:
    """Refuse labels that are known to have another shape: broadcasting would hide a mistake."""
    left, right = b.dims(predicted), b.dims(labels)
    if left is not None and right is not None and differ(left, right):
        raise LossError(
            "labels must have the shape of the predictions",
            where=labels.name,
            found=right,
            expected=left,
        )


def of_difference(
    model: ir.Model,
    predictions: ValueOrName,
    labels: ValueOrName,
    reduction: str,
    losses: Callable[[Builder, ir.Value], ir.Value],
) -> GraphValue:
    """Add a loss `losses(b, predictions - labels)` of each element, in float32 at least."""
    check_reduction(reduction)
    graph, predicted, target = operands(model, predictions, labels)
    b = graph.scoped("loss", Part.LOSS)
    check_same_shape(b, predicted, target)
    wide = b.at_least_float32(predicted)
    error = b.sub(wide, b.cast_like(target, wide))
    return named(graph, reduced(b, losses(b, error), reduction), Compared(predicted, target))


def classes_last(b: Builder, x: ir.Value, axis: int) -> ir.Value:
    """Return a value with the axis of the classes as its last one."""
    rank = b.rank(x)
    if rank is None or axis % rank == rank - 1:
        return x
    axis %= rank
    return b.transpose(x, [d for d in range(rank) if d != axis] + [axis])


def reduced(b: Builder, losses: ir.Value, reduction: str) -> ir.Value:
    """Return the mean or sum of losses, in float32 at least; the losses for "none"."""
    if reduction == "none":
        return losses
    reduce = b.reduce_mean if reduction == "mean" else b.reduce_sum
    return reduce(b.at_least_float32(losses), None, keepdims=False)


def weighted_mean(b: Builder, losses: ir.Value, total: ir.Value) -> ir.Value:
    """Return the sum of weighted losses / `total`, the sum of weights; 0 if no label counts."""
    return b.div(reduced(b, losses, "sum"), b.where(b.equal(total, 0.0), b.ones_like(total), total))


def share_of_classes(b: Builder, scores: ir.Value, amount: float) -> ir.Value:
    """Return an amount / the number of classes, the last axis of the scores: a scalar."""
    dims = b.dims(scores)
    dtype = b.type_of(scores)
    if dims is not None and dims[-1]:
        return b.constant(amount / dims[-1], dtype)
    classes = b.cast(b.squeeze(b.dim(scores, -1), [0]), dtype)
    return b.div(b.constant(amount, dtype), classes)


def named(graph: TrainingGraph, loss: ir.Value, compared: Compared) -> GraphValue:
    """Return a loss, named "loss" if that is free, with a note of what it compares."""
    loss.name = graph.free_name(NAME)
    if compared.denominator is not None:
        compared.denominator.name = graph.free_name(DENOMINATOR)
    note_compared(loss, compared)
    return GraphValue(graph, loss)


def _value(graph: TrainingGraph, reference: str | GraphValue) -> ir.Value:
    if isinstance(reference, str):
        return graph.value(reference).value
    if reference.graph is not graph:
        raise LossError("a value of another model", where=reference.name)
    return reference.value


def check_reduction(reduction: str) -> None:
    """Refuse an unknown reduction."""
    arguments.one_of("reduction", reduction, _REDUCTIONS, error=LossError)


def check_integer(name: str, given: object) -> int:
    """Return an option that is an integer."""
    return arguments.integer(name, given, low=-(2**63), error=LossError)


def check_share(name: str, given: object) -> float:
    """Return an option that is a number from 0 to 1."""
    return arguments.number(name, given, low=0, high=1, expected="0 to 1", error=LossError)


def check_weights(name: str, given: object, rank: int | None = 1) -> np.ndarray[Any, Any]:
    """Return an option that is an array of weights, in float32; None is any rank."""
    try:
        weights = np.asarray(given, np.float32)
    except (TypeError, ValueError, OverflowError):
        weights = np.array(np.nan)
    fits = rank is None or weights.ndim == rank
    if not fits or not np.isfinite(weights).all() or (weights < 0).any():
        raise LossError(
            f"impossible {name}",
            found=f"{given!r:.60}",
            expected="finite numbers of at least 0" + (", one for each class" if rank == 1 else ""),
        )
    return weights
