"""Gradients of arithmetic; g is the gradient of the output y."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.grad.builder.broadcasting import sum_to
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import Length, constant_tensor
from amp_rewrite.grad.rule import Gradients, Rule, Rules
from amp_rewrite.graph.names import place

Received = Sequence[ir.Value | None]


def add(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = a + b: g, g."""
    return [gs[0], gs[0]]


def sub(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = a - b: g, -g (negated after the sum over broadcast axes)."""
    (g,), (_, y) = gs, operands(node)
    return [g, b.neg(sum_to(b, known(g), y))]


def mul(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = a b: g b, g a."""
    (g,), (x, y) = gs, operands(node)
    if x is y:
        return [b.mul(known(g), b.mul(x, 2))]
    return [b.mul(known(g), y), b.mul(known(g), x)]


def div(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = a / b: g / b, -(g / b) y."""
    _, divisor = operands(node)
    quotient = b.div(known(gs[0]), divisor)
    by_divisor = sum_to(b, b.mul(quotient, node.outputs[0]), divisor)
    return [quotient, b.neg(by_divisor)]


def mod(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = fmod(a, b) = a - trunc(a / b) b: g, -g (a - y) / b."""
    x, y = operands(node)
    g = known(gs[0])
    quotient = b.div(b.sub(x, node.outputs[0]), y)
    return [g, b.neg(b.mul(g, quotient))]


def pow_(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = a^p: g p a^(p-1), which is 0 for p = 0, and g y ln a, which is 0 for a <= 0."""
    base, exponent = operands(node)
    g, y = known(gs[0]), node.outputs[0]
    number = b.array(exponent)
    if number is not None and number.size == 1:
        return [_power(b, g, base, float(number.reshape(-1)[0]), y)]
    p = b.cast_like(exponent, base)
    slope = b.mul(p, b.pow(base, b.sub(p, 1)))
    by_base = b.mul(g, b.where(b.equal(p, 0), b.operand(0, p), slope))
    positive = b.greater(base, 0)
    log = b.log(b.where(positive, base, 1))
    return [by_base, b.mul(g, b.mul(y, log))]


def _power(b: Builder, g: ir.Value, x: ir.Value, p: float, y: ir.Value) -> ir.Value | None:
    """Return g p x^(p-1) for a number p."""
    if p == 0:
        return None
    if p == 1:
        return g
    if p == 2:
        return b.mul(g, b.mul(x, p))
    if p == 0.5:
        return _root(b, g, x, y)
    return b.mul(g, b.mul(b.pow(x, p - 1), p))


def _root(b: Builder, g: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
    """Return g / (2 y), and 0 where y = 0.

    There it would be NaN for g = 0, as in a norm, for which 0 is a subgradient (`torch.cdist`).
    """
    return b.where(b.equal(y, 0), 0, b.div(b.mul(g, 0.5), y))


def sum_(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = sum of the x_i: g for each."""
    return [gs[0]] * len(node.inputs)


def mean(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = mean of n x_i: g / n for each."""
    return [b.mul(known(gs[0]), 1 / len(node.inputs))] * len(node.inputs)


def extremum(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = the largest (smallest) of the x_i: g shared evenly among those equal to y."""
    g, y = known(gs[0]), node.outputs[0]
    inputs = operands(node)
    if len(inputs) == 1:
        return [g]
    equal = [b.cast_like(b.equal(x, y), g) for x in inputs]
    count = b.add(*equal) if len(equal) == 2 else b.op("Sum", *equal)
    return [b.mul(g, b.div(e, count)) for e in equal]


def clip(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = min(max(x, low), high): g (x = y); g where x < low <= high; g where y = high < x.

    Where low > high, y is high everywhere, and only high gets a gradient.
    """
    g, x = known(gs[0]), operands(node)[0]
    low, high = (*node.inputs[1:], None, None)[:2]
    passes = b.equal(x, node.outputs[0])
    if low is not None and high is not None and not _in_order(low, high):
        passes = b.logical_and(passes, b.less_or_equal(low, high))
    gradients: list[ir.Value | None] = [b.mul(g, b.cast_like(passes, g)), None, None]
    if low is not None:
        below = b.less(x, low)
        if high is not None:
            below = b.logical_and(below, b.less_or_equal(low, high))
        gradients[1] = b.where(below, g, 0)
    if high is not None:
        gradients[2] = b.where(b.greater(x if low is None else b.maximum(x, low), high), g, 0)
    return gradients[: len(node.inputs)]


def _in_order(low: ir.Value, high: ir.Value) -> bool:
    """Tell whether two limits are constants of which the first is not above the second."""
    one, other = constant_tensor(low), constant_tensor(high)
    return one is not None and other is not None and bool((one.numpy() <= other.numpy()).all())


def where(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = a where c else b: None, g where c else 0, 0 where c else g."""
    g, condition = known(gs[0]), operands(node)[0]
    return [None, b.where(condition, g, 0), b.where(condition, b.operand(0, g), g)]


def operands(node: ir.Node) -> list[ir.Value]:
    """Return a node's inputs, all of which the operator requires."""
    return [v for v in node.inputs if v is not None]


def of_one(gradient: Callable[[Builder, ir.Value, ir.Value, ir.Value], ir.Value]) -> Rule:
    """Return the rule of a function y of one variable x: `gradient(b, g, x, y)` is that of x."""

    def rule(node: ir.Node, gs: Received, b: Builder) -> Gradients:
        """y = f(x): what its row in the table says, of g, x and y."""
        return [gradient(b, known(gs[0]), operands(node)[0], node.outputs[0])]

    return rule


def rank_of(node: ir.Node, b: Builder, x: ir.Value) -> int:
    """Return the rank of an input, without which a rule cannot work."""
    rank = b.rank(x)
    if rank is None:
        raise GradientError(
            "the rank of the input is not known",
            where=place(node),
            remedy="record its shape in the model's value_info; lengths may be symbolic",
        )
    return rank


def known(gradient: ir.Value | None) -> ir.Value:
    """Return the gradient of the first output of an operator with one differentiable output."""
    if gradient is None:
        raise GradientError("a gradient arrives at an output that is not the first one alone")
    return gradient


RULES: Rules = {
    # y = |x|: g sign(x).
    "Abs": of_one(lambda b, g, x, y: b.mul(g, b.sign(x))),
    "Add": add,
    "Clip": clip,
    "Div": div,
    # y = e^x: g y.
    "Exp": of_one(lambda b, g, x, y: b.mul(g, y)),
    # y = ln x: g / x.
    "Log": of_one(lambda b, g, x, y: b.div(g, x)),
    "Max": extremum,
    "Mean": mean,
    "Min": extremum,
    "Mod": mod,
    "Mul": mul,
    # y = -x: -g.
    "Neg": of_one(lambda b, g, x, y: b.neg(g)),
    "Pow": pow_,
    # y = 1 / x: -g y^2.
    "Reciprocal": of_one(lambda b, g, x, y: b.neg(b.mul(g, b.square(y)))),
    # y = square root of x: g / (2 y), 0 where y = 0.
    "Sqrt": of_one(_root),
    "Sub": sub,
    "Sum": sum_,
    "Where": where,
}


def extra_output(
    b: Builder, node: ir.Node, index: int, dtype: ir.DataType, dims: Sequence[Length] | None
) -> ir.Value:
    """Return an optional output of a forward node, which gets it if it has none."""
    if len(node.outputs) <= index:
        node.resize_outputs(index + 1)
    for value in node.outputs[1:]:
        # An output without a name is one that is not computed.
        if not value.name and value is node.outputs[index]:
            value.name = b.free_name(f"{node.outputs[0].name}:{index}")
    value = node.outputs[index]
    if value.type is None:
        value.type = ir.TensorType(dtype)
        value.shape = None if dims is None else ir.Shape(dims)
    return value
