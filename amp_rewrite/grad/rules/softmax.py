"""Gradients of softmax and of the losses built on it; g is the gradient of the output y."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.rule import Gradients, Rules
from amp_rewrite.grad.rules.arithmetic import Received, extra_output, known, operands


def softmax(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = e^x / sum of e^x: y (g - sum of g y)."""
    g, y = known(gs[0]), node.outputs[0]
    product = b.mul(g, y)
    total = b.reduce_sum(product, [node.attributes.get_int("axis", -1)])
    return [b.sub(product, b.mul(y, total))]


def log_softmax(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x - ln of the sum of e^x: g - e^y times the sum of g."""
    return [_log_softmax(b, known(gs[0]), node.outputs[0], node.attributes.get_int("axis", -1))]


def _log_softmax(b: Builder, g: ir.Value, y: ir.Value, axis: int) -> ir.Value:
    return b.sub(g, b.mul(b.exp(y), b.reduce_sum(g, [axis])))


def negative_log_likelihood(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y[n, d] = -w[t] x[n, t, d], t = target[n, d]: -g w[t] at t, 0 elsewhere.

    With the reduction "mean", y = sum of w[t] x[n, t, d] / sum of w[t], hence g / sum of w[t]. What
    ignore_index names counts as w = 0. The class weights w get no gradient: they are data.
    """
    x, target = operands(node)[:2]
    share, index = _shares(node, b, known(gs[0]), x, target)
    at_target = b.unsqueeze(b.neg(share), [1])
    scattered = b.op("ScatterElements", b.zeros_like(x), index, at_target, axis=1)
    return [b.shaped_like(scattered, x)]


def softmax_cross_entropy(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = negative log likelihood of l = log_softmax(x): g w[t] (softmax(x) - one_hot(t)).

    To it comes what arrives at the output log_prob: g_l - softmax(x) times the sum of g_l. The
    class weights get no gradient, as in NegativeLogLikelihoodLoss.
    """
    x, target = operands(node)[:2]
    log_prob = extra_output(b, node, 1, b.type_of(x), b.symbolic_dims(x))
    parts: list[ir.Value] = []
    if gs[0] is not None:
        share, index = _shares(node, b, gs[0], x, target)
        share = b.unsqueeze(share, [1])
        probability = b.exp(log_prob)
        scaled = b.mul(probability, share)
        at_target = b.sub(b.op("GatherElements", scaled, index, axis=1), share)
        # One element per row: no two updates meet, so that none has to be added.
        parts.append(b.op("ScatterElements", scaled, index, at_target, axis=1))
    if len(gs) > 1 and gs[1] is not None:
        parts.append(_log_softmax(b, gs[1], log_prob, 1))
    total = parts[0] if len(parts) == 1 else b.add(parts[0], parts[1])
    return [b.shaped_like(total, x)]


def _shares(
    node: ir.Node, b: Builder, g: ir.Value, x: ir.Value, target: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Return each target's share of g, (N, *d), and its class, (N, 1, *d), 0 where ignored."""
    weight = node.inputs[2] if len(node.inputs) > 2 else None
    ignored = node.attributes.get("ignore_index")
    index, counted = target, None
    if ignored is not None:
        counted = b.logical_not(b.equal(target, ignored.as_int()))
        index = b.where(counted, target, 0)
    share: ir.Value | None = None
    if weight is not None:
        share = b.gather(weight, index)
    if counted is not None:
        share = b.cast_like(counted, x) if share is None else b.where(counted, share, 0)
    reduction = node.attributes.get_string("reduction", "mean")
    if reduction == "mean":
        total = (
            b.cast_like(b.size(target), x) if share is None else b.reduce_sum(share, keepdims=False)
        )
        g = b.div(g, total)
    share = g if share is None else b.mul(share, g)
    if b.rank(target) != b.rank(share):
        share = b.expand_like(share, target)
    return b.shaped_like(share, target), b.unsqueeze(index, [1])


RULES: Rules = {
    "LogSoftmax": log_softmax,
    "NegativeLogLikelihoodLoss": negative_log_likelihood,
    "Softmax": softmax,
    "SoftmaxCrossEntropyLoss": softmax_cross_entropy,
}
