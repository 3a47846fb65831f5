"""Clip gradients between compute_gradients and apply_gradients.

Values of equal indices of a sparse gradient are summed first, so that its norm is that of the dense
gradient. Norms are computed in float32, or in float64 for float64 gradients.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import onnx_ir as ir

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.rule import IndexedSlices
from amp_rewrite.graph.metadata_keys import SQUARES_KEY, UNCLIPPED_KEY
from amp_rewrite.graph.step_part import Part
from amp_rewrite.training.graph.training_graph import GraphValue, TrainingGraph
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.config import Settings
from amp_rewrite.training.optimizers.gradient import (
    Gradient,
    Raw,
    graph_of,
    merged,
    unwrap,
    values_of,
    with_values,
    wrap,
)

SCOPE = "clip"


def clip(gradients: list[Any], settings: Settings) -> list[Any]:
    """Return gradients clipped by the limit that is set, if any."""
    if settings.clipnorm is not None:
        return [clip_by_norm(g, settings.clipnorm) for g in gradients]
    if settings.clipvalue is not None:
        return [clip_by_value(g, -settings.clipvalue, settings.clipvalue) for g in gradients]
    if settings.global_clipnorm is not None:
        return clip_by_global_norm(gradients, settings.global_clipnorm)[0]
    return gradients


def clip_by_global_norm(
    gradients: Iterable[Gradient], clip_norm: float, use_norm: GraphValue | None = None
) -> tuple[list[Gradient], GraphValue]:
    """Scale all gradients together so that their global norm is at most `clip_norm`.

    g_i * clip_norm / max(norm, clip_norm), where norm = sqrt(sum_i |g_i|^2). If the norm is not
    finite, all gradients become NaN (R. Pascanu, T. Mikolov, Y. Bengio, "On the difficulty of
    training recurrent neural networks", 2013, https://arxiv.org/abs/1211.5063).

    Args:
        gradients: Gradients; None stays None.
        clip_norm: The largest norm, above 0.
        use_norm: A norm to use in place of the gradients' own.

    Returns:
        The clipped gradients, and the global norm before clipping: a scalar.

    Raises:
        OptimizerValueError: `clip_norm` is not positive, or all gradients are None.
    """
    limit = check.number("clip_norm", clip_norm, above=True)
    tensors = check.listed(gradients, "gradients")
    if not isinstance(use_norm, GraphValue | None):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise OptimizerTypeError(
            "use_norm must be a value",
            found=f"an object of type {type(use_norm).__name__}",
            expected="what global_norm returned",
        )
    graph = _graph([*tensors, use_norm])
    b = graph.scoped(SCOPE, Part.CLIP)
    raw = [None if g is None else _summed(b, g) for g in tensors]
    present = [g for g in raw if g is not None]
    norm = global_norm_of(b, present) if use_norm is None else use_norm.value
    scale = b.div(limit, b.maximum(norm, limit))
    scale = b.add(scale, b.sub(norm, norm))  # infinity - infinity is NaN
    clipped = [None if g is None else _map(b, g, lambda v: _times(b, v, scale)) for g in raw]
    for gradient, before in zip(clipped, raw, strict=True):
        if gradient is not None and before is not None:
            values_of(gradient).meta[UNCLIPPED_KEY] = values_of(before)
    return [wrap(graph, g) for g in clipped], GraphValue(graph, norm)


def clip_by_norm(gradient: Gradient, clip_norm: float, axes: Sequence[int] | None = None) -> Any:
    """Scale one gradient so that its norm is at most `clip_norm`.

    g * clip_norm / max(|g|, clip_norm).

    Args:
        gradient: A gradient; None stays None.
        clip_norm: The largest norm, above 0.
        axes: The axes that one norm runs over; None is all, and the only choice for a sparse
            gradient.

    Raises:
        OptimizerValueError: `clip_norm` is not positive, or axes are given for IndexedSlices.
    """
    limit = check.number("clip_norm", clip_norm, above=True)
    if gradient is None:
        return None
    graph = _graph([gradient])
    b = graph.scoped(SCOPE, Part.CLIP)
    raw = _summed(b, gradient)
    if axes is not None:
        try:
            axes = [operator.index(axis) for axis in axes]
        except TypeError as error:
            raise OptimizerTypeError("axes must be a list of integers", found=repr(axes)) from error
    if axes is not None and isinstance(raw, IndexedSlices):
        raise OptimizerValueError("a sparse gradient has one norm", expected="axes=None")
    values = b.at_least_float32(values_of(raw))
    norm = b.sqrt(b.reduce("ReduceSumSquare", values, axes, keepdims=axes is not None))
    scale = b.div(limit, b.maximum(norm, limit))
    return wrap(graph, _map(b, raw, lambda v: _times(b, v, scale)))


def clip_by_value(gradient: Gradient, clip_value_min: float, clip_value_max: float) -> Any:
    """Limit every element of a gradient to an interval.

    Args:
        gradient: A gradient; None stays None.
        clip_value_min: The smallest value.
        clip_value_max: The largest value.

    Raises:
        OptimizerValueError: The interval is empty, or a bound is NaN.
    """
    low = check.real("clip_value_min", clip_value_min)
    high = check.real("clip_value_max", clip_value_max)
    if not low <= high:
        raise OptimizerValueError(
            "an empty interval to clip to",
            found=f"{low} to {high}",
            expected="clip_value_min <= clip_value_max",
        )
    if gradient is None:
        return None
    graph = _graph([gradient])
    b = graph.scoped(SCOPE, Part.CLIP)
    before = _summed(b, gradient)
    clipped = _map(b, before, lambda v: b.op("Clip", v, b.operand(low, v), b.operand(high, v)))
    values_of(clipped).meta[UNCLIPPED_KEY] = values_of(before)
    return wrap(graph, clipped)


def unclipped(gradient: Raw) -> Raw:
    """Return a gradient before `clip_by_value` and `clip_by_global_norm`, or as it is."""
    values = values_of(gradient)
    while UNCLIPPED_KEY in values.meta:
        values = values.meta[UNCLIPPED_KEY]
    return with_values(gradient, values)


def global_norm(gradients: Iterable[Gradient]) -> GraphValue:
    """Return sqrt(sum_i |g_i|^2) over gradients, not all None: a scalar."""
    tensors = check.listed(gradients, "gradients")
    graph = _graph(tensors)
    b = graph.scoped(SCOPE, Part.CLIP)
    raw = [_summed(b, g) for g in tensors if g is not None]
    return GraphValue(graph, global_norm_of(b, raw))


def global_norm_of(b: Builder, gradients: Sequence[Raw]) -> ir.Value:
    """Return the global norm of at least one gradient whose indices do not repeat."""
    squares = [_squares(b, values_of(g)) for g in gradients]
    widest = max((b.type_of(s) for s in squares), key=lambda t: t.itemsize)
    wide = [b.cast(s, widest) for s in squares]
    return b.sqrt(wide[0] if len(wide) == 1 else b.op("Sum", *wide))


def _squares(b: Builder, values: ir.Value) -> ir.Value:
    """Return the sum of squares, which is computed once for each tensor."""
    if SQUARES_KEY not in values.meta:
        wide = b.at_least_float32(values)
        values.meta[SQUARES_KEY] = b.reduce("ReduceSumSquare", wide, None, keepdims=False)
    return values.meta[SQUARES_KEY]


def norm_before_clipping(b: Builder, gradients: Sequence[Raw]) -> ir.Value:
    """Return the global norm of gradients before `clip_by_value` and `clip_by_global_norm`."""
    return global_norm_of(b, [merged(b, unclipped(g), rows_only=True) for g in gradients])


def _graph(gradients: Sequence[Gradient]) -> TrainingGraph:
    graph = graph_of(gradients)
    if graph is not None:
        return graph
    raise OptimizerValueError(
        "no gradients to clip", found="None only", expected="what compute_gradients returned"
    )


def _summed(b: Builder, gradient: Gradient) -> Raw:
    return merged(b, unwrap(gradient), rows_only=True)


def _map(b: Builder, gradient: Raw, function: Any) -> Raw:
    values = values_of(gradient)
    result = b.cast_like(function(b.at_least_float32(values)), values)
    return with_values(gradient, b.shaped_like(result, values))


def _times(b: Builder, values: ir.Value, scale: ir.Value) -> ir.Value:
    return b.mul(values, b.cast_like(scale, values))
