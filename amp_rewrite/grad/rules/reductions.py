"""Gradients of reductions and cumulative sums; g is the gradient of the output y.

Where axes are dropped from y, g and y get them back as axes of length 1; broadcasting does the
rest. A reduction over no axes (noop_with_empty_axes) has the same formulas.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.rule import Gradients, Rules
from amp_rewrite.grad.rules.arithmetic import Received, known, operands


def reduce_sum(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = sum of x: g."""
    return [b.expand_like(_kept(b, node, known(gs[0])), operands(node)[0])]


def reduce_mean(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = mean of n x: g / n."""
    g, x = known(gs[0]), operands(node)[0]
    share = _share(b, node, x)
    return [b.expand_like(_kept(b, node, b.mul(g, share)), x)]


def _share(b: Builder, node: ir.Node, x: ir.Value) -> ir.Value | float:
    """Return 1 / n, n the number of elements that make one: a number if it is known now."""
    axes, dims = _axes(node, b), b.dims(x)
    if _is_noop(node, b):
        return 1.0
    if isinstance(axes, list) and dims is not None:
        lengths = [dims[axis] for axis in axes]
    else:
        lengths = list(dims) if axes is None and dims is not None else [None]
    static = [n for n in lengths if n is not None]
    if len(static) == len(lengths):
        return 1 / max(math.prod(static), 1)
    return b.div(b.cast_like(b.size(node.outputs[0]), x), b.cast_like(b.size(x), x))


def reduce_extremum(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = largest (smallest) x: g shared evenly among the x that equal y."""
    x = operands(node)[0]
    g, y = _kept(b, node, known(gs[0])), _kept(b, node, node.outputs[0])
    equal = b.cast_like(b.equal(x, y), g)
    axes = _axes(node, b)
    count = b.reduce_sum(equal, axes) if not _is_noop(node, b) else equal
    return [b.mul(equal, b.div(g, count))]


def reduce_prod(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = product of x: g times the product of the others, which zeros leave exact.

    With z zeros and q the product of what is not zero: q / x for z = 0; q where x = 0 for z = 1;
    0 everywhere else.
    """
    x = operands(node)[0]
    g = _kept(b, node, known(gs[0]))
    is_zero = b.equal(x, 0)
    safe = b.where(is_zero, b.operand(1, x), x)
    zeros = b.cast_like(is_zero, x)
    if not _is_noop(node, b):
        axes = _axes(node, b)
        zeros, product = b.reduce_sum(zeros, axes), b.reduce("ReduceProd", safe, axes)
    else:
        product = safe
    none, one = b.equal(zeros, 0), b.equal(zeros, 1)
    of_others = b.where(b.logical_and(is_zero, one), product, 0)
    of_others = b.where(none, b.div(product, safe), of_others)
    return [b.mul(g, of_others)]


def reduce_l1(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = sum of |x|: g sign(x)."""
    return [b.mul(_kept(b, node, known(gs[0])), b.sign(operands(node)[0]))]


def reduce_l2(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = sqrt of the sum of x^2: g x / y, and 0 where y = 0."""
    x = operands(node)[0]
    g, y = known(gs[0]), node.outputs[0]
    ratio = b.where(b.greater(y, 0), b.div(g, y), 0)
    return [b.mul(_kept(b, node, ratio), x)]


def reduce_sum_square(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = sum of x^2: 2 g x."""
    x = operands(node)[0]
    return [b.mul(_kept(b, node, b.mul(known(gs[0]), 2)), x)]


def reduce_log_sum(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = ln of the sum of x: g e^-y."""
    by_sum = b.mul(known(gs[0]), b.exp(b.neg(node.outputs[0])))
    return [b.expand_like(_kept(b, node, by_sum), operands(node)[0])]


def reduce_log_sum_exp(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = ln of the sum of e^x: g e^(x - y)."""
    x = operands(node)[0]
    g, y = _kept(b, node, known(gs[0])), _kept(b, node, node.outputs[0])
    return [b.mul(g, b.exp(b.sub(x, y)))]


def cum_sum(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = running sum of x along an axis: the running sum of g the other way."""
    g, axis = known(gs[0]), operands(node)[1]
    reverse = 1 - node.attributes.get_int("reverse", 0)
    exclusive = node.attributes.get_int("exclusive", 0)
    return [b.op("CumSum", g, axis, exclusive=exclusive, reverse=reverse)]


def _axes(node: ir.Node, b: Builder) -> ir.Value | list[int] | None:
    """Return the axes given: an input, an attribute, or None for all."""
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        listed = b.ints(node.inputs[1])
        return node.inputs[1] if listed is None else (listed or None)
    listed = list(node.attributes.get_ints("axes", ()))
    return listed or None


def _is_noop(node: ir.Node, b: Builder) -> bool:
    """Return whether no axis is reduced."""
    return _axes(node, b) is None and bool(node.attributes.get_int("noop_with_empty_axes", 0))


def _kept(b: Builder, node: ir.Node, value: ir.Value) -> ir.Value:
    """Return a value of the shape of y with the reduced axes put back as axes of length 1."""
    axes = _axes(node, b)
    if axes is None or node.attributes.get_int("keepdims", 1):
        return value
    return b.unsqueeze(value, axes)


RULES: Rules = {
    "CumSum": cum_sum,
    "ReduceL1": reduce_l1,
    "ReduceL2": reduce_l2,
    "ReduceLogSum": reduce_log_sum,
    "ReduceLogSumExp": reduce_log_sum_exp,
    "ReduceMax": reduce_extremum,
    "ReduceMean": reduce_mean,
    "ReduceMin": reduce_extremum,
    "ReduceProd": reduce_prod,
    "ReduceSum": reduce_sum,
    "ReduceSumSquare": reduce_sum_square,
}
