"""Clip gradients between compute_gradients and apply_gradients.

Each function takes gradients as users hold them (values, IndexedSlices or None) and returns the
same kinds. Equal indices of a sparse gradient are summed first, so that a norm is that of the dense
gradient. The computation is in float32 at least.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, cast

import onnx_ir as ir

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.rule import IndexedSlices
from amp_rewrite.graph.metadata_keys import NORM_KEY, NORM_OF_KEY
from amp_rewrite.graph.step_part import Part, part_of
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
    """Return gradients clipped by the one limit that is set, if any."""
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
        use_norm: The norm, if it is known already.

    Returns:
        The clipped gradients, and the global norm before clipping: a scalar.

    Raises:
        OptimizerValueError: `clip_norm` is not positive, or all gradients are None.
    """
    limit = check.number("clip_norm", clip_norm, above=True)
    tensors = check.listed(gradients, "gradients")
    norm_before = _norm_given(use_norm)
    graph = _graph([*tensors, use_norm])
    b = graph.scoped(SCOPE, Part.CLIP)
    raw = [None if g is None else _summed(b, g) for g in tensors]
    present = [g for g in raw if g is not None]
    norm = global_norm_of(b, present) if norm_before is None else norm_before
    scale = b.div(limit, b.maximum(norm, limit))
    scale = b.add(scale, b.sub(norm, norm))  # infinity - infinity is NaN
    clipped = [None if g is None else _map(b, g, lambda v: _times(b, v, scale)) for g in raw]
    for gradient, before in zip(clipped, raw, strict=True):
        if gradient is not None and before is not None:
            values_of(gradient).meta[NORM_KEY] = norm, values_of(before)
    return [wrap(graph, g) for g in clipped], GraphValue(graph, norm)


def _norm_given(use_norm: object) -> ir.Value | None:
    """Return a norm that a user has computed."""
    if use_norm is None:
        return None
    if not isinstance(use_norm, GraphValue):
        raise OptimizerTypeError(
            "use_norm must be a value",
            found=f"an object of type {type(use_norm).__name__}",
            expected="what global_norm returned",
        )
    return use_norm.value


def clip_by_norm(gradient: Gradient, clip_norm: float, axes: Sequence[int] | None = None) -> Any:
    """Scale one gradient so that its norm is at most `clip_norm`.

    g * clip_norm / max(|g|, clip_norm).

    Args:
        gradient: A gradient; None stays None.
        clip_norm: The largest norm, above 0.
        axes: The axes that the norm runs over, each slice along the others having its own; None is
            all of them. A sparse gradient takes None only.

    Raises:
        OptimizerValueError: `clip_norm` is not positive, or axes are given for IndexedSlices.
    """
    limit = check.number("clip_norm", clip_norm, above=True)
    if gradient is None:
        return None
    graph = _graph([gradient])
    b = graph.scoped(SCOPE, Part.CLIP)
    raw = _summed(b, gradient)
    axes = _axes(axes)
    if axes is not None and isinstance(raw, IndexedSlices):
        raise OptimizerValueError("a sparse gradient has one norm", expected="axes=None")
    values = b.at_least_float32(values_of(raw))
    squares = b.reduce("ReduceSumSquare", values, axes, keepdims=axes is not None)
    norm = b.sqrt(squares)
    scale = b.div(limit, b.maximum(norm, limit))
    return wrap(graph, _map(b, raw, lambda v: _times(b, v, scale)))


def _axes(axes: object) -> list[int] | None:
    """Return axes as integers."""
    if axes is None:
        return None
    try:
        return [operator.index(axis) for axis in cast(Iterable[Any], axes)]
    except TypeError as error:
        raise OptimizerTypeError("axes must be a list of integers", found=repr(axes)) from error


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
    clipped = _map(
        b, _summed(b, gradient), lambda v: b.op("Clip", v, b.operand(low, v), b.operand(high, v))
    )
    return wrap(graph, clipped)


def unclipped(gradient: Raw) -> Raw:
    """Return a gradient as it was before `clip_by_value`, or as it is."""
    values = values_of(gradient)
    node = values.producer()
    while node is not None and node.op_type == "Clip" and part_of(node) is Part.CLIP:
        assert node.inputs[0] is not None, "Clip has an input"
        values = node.inputs[0]
        node = values.producer()
    return with_values(gradient, values)


def global_norm(gradients: Iterable[Gradient]) -> GraphValue:
    """Return sqrt(sum_i |g_i|^2) over gradients, a scalar; None is ignored.

    Raises:
        OptimizerValueError: All gradients are None.
    """
    tensors = check.listed(gradients, "gradients")
    graph = _graph(tensors)
    b = graph.scoped(SCOPE, Part.CLIP)
    raw = [_summed(b, g) for g in tensors if g is not None]
    return GraphValue(graph, global_norm_of(b, raw))


def global_norm_of(b: Builder, gradients: Sequence[Raw]) -> ir.Value:
    """Return the global norm of at least one gradient whose indices do not repeat."""
    squares = [
        b.reduce("ReduceSumSquare", b.at_least_float32(values_of(g)), None, keepdims=False)
        for g in gradients
    ]
    widest = max((b.type_of(s) for s in squares), key=lambda t: t.itemsize)
    wide = [b.cast(s, widest) for s in squares]
    norm = b.sqrt(wide[0] if len(wide) == 1 else b.op("Sum", *wide))
    norm.meta[NORM_OF_KEY] = frozenset(values_of(g) for g in gradients)
    return norm


def norm_before_clipping(b: Builder, gradients: Sequence[Raw]) -> ir.Value:
    """Return the global norm of gradients before clipping: the one that is known, or a new one.

    Of gradients that `clip_by_norm` has limited, or a user's arithmetic changed, it is that of the
    results.
    """
    sources = [unclipped(gradient) for gradient in gradients]
    norm = known_norm(sources)
    if norm is None:
        raw = [merged(b, g, rows_only=True) for g in sources]
        norm = global_norm_of(b, raw)
        for values in map(values_of, raw):
            values.meta[NORM_KEY] = norm, values
    return norm


def known_norm(gradients: Sequence[Raw]) -> ir.Value | None:
    """Return the global norm of exactly these gradients before clipping if it is computed."""
    entries: list[tuple[ir.Value, ir.Value] | None] = [
        values_of(g).meta.get(NORM_KEY) for g in gradients
    ]
    scaled = [entry for entry in entries if entry is not None]
    norms = {norm for norm, _ in scaled}
    if len(scaled) < len(entries) or len(norms) != 1:  # some are not clipped, or by another norm
        return None
    norm = norms.pop()
    return norm if {source for _, source in scaled} == norm.meta.get(NORM_OF_KEY) else None


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
