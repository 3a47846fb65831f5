"""Whether all gradients are finite, and their norm: one pass over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.metadata_keys import CHECK_KEY
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.graph.replicas import Groups, cross_replica_sum
from amp_rewrite.training.loss_scaling.hidden_infinities import hidden_infinities, sums_over_losses
from amp_rewrite.training.optimizers.clipping import (
    global_norm_of,
    known_norm,
    remember_norm,
    unclipped,
)
from amp_rewrite.training.optimizers.gradient import Raw, merged, parts_of, values_of


def is_check(node: ir.Node) -> bool:
    """Return whether a node decides whether gradients are finite by their norm."""
    return CHECK_KEY in node.metadata_props


def finite_and_norm(
    b: Builder, gradients: Sequence[Raw], factor: float = 1.0
) -> tuple[ir.Value, ir.Value]:
    """Return whether all gradients are finite, and their global norm.

    The norm sqrt(sum_i |g_i|^2) is finite only if every element is: squares are not negative, so
    that nothing cancels. It is not finite either if the sum overflows, in float32 at a norm of
    1.8e19 / factor: such a step counts as not finite too in other runtimes, and where it is clipped
    by that norm. A session lets sums decide in its place; see `check_by_sums`.

    The norm that `clip_by_global_norm` has computed is used where there is one. Gradients that
    `clip_by_value` has limited count as they were before it; where a user's arithmetic may hide an
    infinity otherwise, the gradients before it are checked besides.

    Args:
        b: Adds the nodes.
        gradients: At least one, in float32 or float64: unscaled, reduced over shards. Values of
            equal indices of a sparse one are summed first.
        factor: What they are multiplied by, besides; the norm is that without it.

    Returns:
        bool, shape (); and the norm, shape (), in the widest type of the gradients.
    """
    sources = [unclipped(g) for g in gradients]
    norm = known_norm(sources)
    if norm is None:
        raw = [merged(b, g, rows_only=True) for g in sources]
        norm = global_norm_of(b, raw, factor)
        remember_norm(norm, raw)
    finite = _checked(b, norm)
    hidden = hidden_infinities(values_of(g) for g in sources)
    for path in dict.fromkeys(hidden.values()):
        other = global_norm_of(b, [v for v, groups in hidden.items() if groups == path])
        for groups in path:
            other = cross_replica_sum(b, other, groups)
        finite = b.op("And", finite, _checked(b, other))
    return finite, norm


def finite_by_loss(b: Builder, gradients: Sequence[Raw], losses: int) -> list[ir.Value]:
    """Return for each loss whether the gradients are finite that it adds: bool, shape ().

    The gradients are those of the sum of the losses, reduced over shards.
    """
    sums = sums_over_losses(values_of(gradient) for gradient in gradients)
    return [_all_finite(b, sums, loss) for loss in range(losses)]


def _all_finite(b: Builder, sums: Mapping[ir.Value, tuple[Groups, ...]], loss: int) -> ir.Value:
    finite = b.constant(np.array(True))
    for path in dict.fromkeys(sums.values()):
        parts = [(parts_of(v) or ())[loss] for v, groups in sums.items() if groups == path]
        own = list(dict.fromkeys(part for part in parts if part is not None))
        if not own:
            continue
        norm = global_norm_of(b, own)
        for groups in path:
            norm = cross_replica_sum(b, norm, groups)
        finite = b.op("And", finite, _checked(b, norm))
    return finite


def is_finite(b: Builder, number: ir.Value) -> ir.Value:
    """Return whether a number that is not negative is finite: bool, shape ()."""
    largest = float(np.finfo(b.type_of(number).numpy()).max)
    return b.less_or_equal(number, largest)  # false for infinity and for NaN


def _checked(b: Builder, norm: ir.Value) -> ir.Value:
    """Return whether a norm is finite, by a node that `is_check` knows."""
    finite = is_finite(b, norm)
    node = finite.producer()
    assert node is not None, "a comparison is a node"
    node.metadata_props[CHECK_KEY] = "norm"
    return finite
