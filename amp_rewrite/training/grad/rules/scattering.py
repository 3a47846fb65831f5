"""Gradients of operators that write at indices; g is the gradient of the output y.

x is the data, u the updates, i the indices; [i] reads at them as the operator writes.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.graph.names import place
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.grad.rule import Gradients, Rules
from amp_rewrite.training.grad.rules.arithmetic import Received, known, operands

Read = Callable[[ir.Value], ir.Value]
Write = Callable[[ir.Value, ir.Value, str | None], ir.Value]


def scatter_elements(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x with u written at i along an axis; see `_by_reduction`."""
    axis = node.attributes.get_int("axis", 0)
    indices = operands(node)[1]

    def read(value: ir.Value) -> ir.Value:
        return b.op("GatherElements", value, indices, axis=axis)

    def write(base: ir.Value, updates: ir.Value, reduction: str | None) -> ir.Value:
        written = b.op("ScatterElements", base, indices, updates, axis=axis, reduction=reduction)
        return b.shaped_like(written, base)

    return _by_reduction(node, known(gs[0]), b, read, write)


def scatter_nd(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x with u written at index tuples; see `_by_reduction`."""
    indices = operands(node)[1]

    def read(value: ir.Value) -> ir.Value:
        return b.op("GatherND", value, indices)

    def write(base: ir.Value, updates: ir.Value, reduction: str | None) -> ir.Value:
        return b.shaped_like(b.op("ScatterND", base, indices, updates, reduction=reduction), base)

    return _by_reduction(node, known(gs[0]), b, read, write)


def _by_reduction(node: ir.Node, g: ir.Value, b: Builder, read: Read, write: Write) -> Gradients:
    """Return the gradients of the data and of the updates, by the attribute `reduction`.

    none: g with zeros at i, and g[i] (indices must not repeat, as the standard demands).
    add: g, and g[i].
    mul: g times the product of the updates, and g[i] times x[i] and the product of the other u.
    max, min: g shared evenly among x and the u that equal y.
    """
    x, _, updates = operands(node)
    reduction = node.attributes.get_string("reduction", "none")
    if reduction == "none":
        return [write(g, b.zeros_like(updates), None), None, read(g)]
    if reduction == "add":
        return [g, None, read(g)]
    if reduction == "mul":
        factors = write(b.ones_like(x), updates, "mul")
        return [b.mul(g, factors), None, b.mul(read(g), _of_others(b, x, updates, read, write))]
    y = node.outputs[0]
    if reduction in ("max", "min"):
        kept = b.cast_like(b.equal(x, y), g)
        taken = b.cast_like(b.equal(updates, read(y)), g)
        share = b.div(g, write(kept, taken, "add"))
        return [b.mul(kept, share), None, b.mul(taken, read(share))]
    raise GradientError(
        "a reduction without a gradient",
        where=place(node),
        found=reduction,
        expected="none, add, mul, max or min",
    )


def _of_others(b: Builder, x: ir.Value, updates: ir.Value, read: Read, write: Write) -> ir.Value:
    """Return, for each u, x[i] times the other u that meet there.

    With z zeros among the u of a place and q the product of x and what is not zero: q / u for
    z = 0; q where u = 0 for z = 1; 0 everywhere else.
    """
    is_zero = b.equal(updates, 0)
    safe = b.where(is_zero, b.operand(1, updates), updates)
    zeros = read(write(b.zeros_like(x), b.cast_like(is_zero, x), "add"))
    product = read(write(x, safe, "mul"))
    alone = b.logical_and(is_zero, b.equal(zeros, 1))
    others = b.where(b.equal(zeros, 0), b.div(product, safe), 0)
    return b.where(alone, product, others)


RULES: Rules = {"ScatterElements": scatter_elements, "ScatterND": scatter_nd}
