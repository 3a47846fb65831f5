"""How much of each gradient is too small for its type: a fetch that every step knows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from amp_rewrite import dtypes
from amp_rewrite.errors import FetchError
from amp_rewrite.graph import elements
from amp_rewrite.graph.infer import infer_types
from amp_rewrite.graph.step_part import Part
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.step.step_info import StepInfo

UNDERFLOW = "gradient_underflow"
"""The fetch: float32, (variables of `underflow_variables`, 2).

The first column is the share of the elements of a variable's gradient that are zero, the second
one of those that are subnormal: below the least normal number of the type that the backward pass
computed the gradient in, so that digits are lost, but not zero. Elements are looked at as the
backward pass left them: times the loss scale, of this batch alone, before anything is unscaled,
accumulated, summed over shards or clipped. Zeros are counted whether they underflowed or are exact
(behind a Relu that is off, or rows of a table that were not read): only float32 could tell.
"""

SAMPLE = 4096
"""At most this number of elements of each gradient is looked at, spread over all of it; the shares
of a larger one have a standard error below 0.8 %."""

_SCOPE = "underflow"


def underflow_variables(info: StepInfo) -> tuple[str, ...]:
    """Return the variables that the rows of the fetch are about, in their order."""
    return tuple(info.gradients or {})


def with_underflow(model: ir.Model, info: StepInfo) -> StepInfo:
    """Add the nodes of the fetch to a step; return the description that knows it.

    The samples of all gradients become one matrix, so that the elements of all are counted by five
    nodes, whatever the number of variables. The step has everything that can be fetched, and is
    changed in place.

    Raises:
        FetchError: The step does not say which values carry gradients.
    """
    values = {v.name: v for node in model.graph for v in node.outputs}
    names = [info.gradients[name] for name in underflow_variables(info)] if info.gradients else []
    if not names or any(name not in values for name in names):
        raise FetchError(
            "the step does not say which values carry its gradients",
            where=UNDERFLOW,
            expected="a step with one backward pass",
        )
    gradients = [values[name] for name in names]
    b = Builder(model, scope=_SCOPE, part=Part.ARITHMETIC)
    types = infer_types(model)
    least = np.array([[_least_normal(value, types)] for value in gradients], np.float32)
    samples, counts = zip(*(_sample(b, value) for value in gradients), strict=True)
    matrix = b.concat([b.unsqueeze(sample, [0]) for sample in samples], 0)
    lengths = b.concat([b.reshape(count, [1, 1]) for count in counts], 0)
    zero = b.equal(matrix, 0.0)
    small = b.less(b.abs(matrix), b.constant(least))
    below = [_share(b, zero, lengths), _share(b, small, lengths)]
    shares = b.concat([below[0], b.sub(below[1], below[0])], 1)
    return replace(info, fetches={**info.fetches, UNDERFLOW: str(shares.name)})


def _least_normal(gradient: ir.Value, types: dict[ir.Value, str]) -> float:
    """Return the least normal number of the type that a gradient was computed in."""
    value = gradient
    while (source := _source_of(value, Trait.REARRANGES)) is not None:
        value = source
    value = _source_of(value, Trait.CASTS) or value
    number = elements.element(types.get(value, ""))
    return (dtypes.of(number or 0) or dtypes.FLOAT32).smallest_normal


def _source_of(value: ir.Value, trait: Trait) -> ir.Value | None:
    """Return the first input of the node that makes a value, if its operator has a trait."""
    node = value.producer()
    return None if node is None or not has(node, trait) else node.inputs[0]


def _sample(b: Builder, gradient: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return SAMPLE elements of a gradient in float32, and how many of them are its own: int64.

    A shorter one is filled up with ones, which are neither zero nor small.
    """
    flat = b.reshape(gradient, [-1])
    dims = b.dims(gradient)
    if dims is None or None in dims:
        size = b.op("Size", gradient)  # of a table, the rows that the batch has read
        stride = b.add(b.mul(b.div(size, b.constant(SAMPLE)), b.constant(2)), b.constant(1))
        step, length = b.reshape(stride, [1]), None
    else:
        length = math.prod(d for d in dims if d is not None)
        step = b.vector([_stride(length)])
        length = len(range(0, length, _stride(length)))
    taken = b.slice(flat, [0], [np.iinfo(np.int64).max], [0], step)
    taken = b.cast(taken, ir.DataType.FLOAT)
    count = b.op("Size", taken) if length is None else b.constant(length)
    if length == SAMPLE:
        return taken, count
    missing = b.reshape(b.sub(b.constant(SAMPLE), count), [1])
    if length is not None:
        missing = b.vector([SAMPLE - length])
    ends = b.concat([b.vector([0]), missing], 0)
    return b.op("Pad", taken, ends, b.constant(np.float32(1))), count


def _stride(length: int) -> int:
    """Return a stride that takes at most SAMPLE elements and meets all rows and columns equally."""
    stride = length // SAMPLE + 1 if length > SAMPLE else 1
    while math.gcd(stride, length) > 1:
        stride += 1
    return stride


def _share(b: Builder, chosen: ir.Value, counts: ir.Value) -> ir.Value:
    """Return how many elements of each row are chosen, over its count; 0 of none."""
    total = b.reduce_sum(b.cast(chosen, ir.DataType.FLOAT), [1])
    return b.div(total, b.cast(b.maximum(counts, 1), ir.DataType.FLOAT))
