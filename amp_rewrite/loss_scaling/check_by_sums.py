"""A finite check that is cheaper than the norm, for steps that need no norm."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.builder.builder import Builder
from amp_rewrite.graph.part import Part
from amp_rewrite.graph.traverse import remove_unused_nodes
from amp_rewrite.loss_scaling.finite import is_check
from amp_rewrite.training.prepare import record_types

_SCOPE = "finite"


def check_by_sums(model: ir.Model) -> None:
    """Check sums of gradients where a norm is computed for the finite check only, in place.

    A sum is finite only if every element is: infinities of both signs make NaN. Unlike the norm it
    does not overflow before the sum of magnitudes exceeds the largest number. ONNX Runtime's CPU
    provider sums rows on all threads, close to where the gradient was computed, but squares and
    sums a whole tensor on one: a step of benchmarks/bench_loss_scaling.py's MLP takes 3 % less.

    Args:
        model: A step that computes what it needs and nothing else.
    """
    checks = [node for node in model.graph if is_check(node)]
    found = [(check, gradients) for check in checks if (gradients := _only_checked(check))]
    if not found:
        return
    record_types(model)
    b = Builder(model, scope=_SCOPE, part=Part.LOSS_SCALE)
    for check, gradients in found:
        check.replace_input_with(0, b.op("Abs", _total(b, gradients)))
    remove_unused_nodes(model.graph)
    model.graph.sort()


def _only_checked(check: ir.Node) -> list[ir.Value]:
    """Return the gradients whose norm a node checks; none if the norm is needed or unknown."""
    value = check.inputs[0]
    gradients: list[ir.Value] = []
    left = [] if value is None else [value]
    while left:
        value = left.pop()
        node = value.producer()
        if node is None or value.is_graph_output() or len(value.uses()) != 1:
            return []
        if node.op_type == "ReduceSumSquare":
            gradients.extend(v for v in node.inputs[:1] if v is not None)
        elif node.op_type in ("Div", "Sqrt", "Cast"):  # operators: what a norm is made of
            left.extend(v for v in node.inputs[:1] if v is not None)
        elif node.op_type == "Sum":
            left.extend(v for v in node.inputs if v is not None)
        else:
            return []
    return gradients


def _total(b: Builder, gradients: list[ir.Value]) -> ir.Value:
    """Return the sum of all elements, in the widest of the types: shape ()."""
    sums = [_row_sums(b, gradient) for gradient in gradients]
    widest = max((b.type_of(s) for s in sums), key=lambda dtype: dtype.itemsize)
    return b.reduce_sum(b.concat([b.cast(s, widest) for s in sums], 0), keepdims=False)


def _row_sums(b: Builder, gradient: ir.Value) -> ir.Value:
    """Return sums that contain every element: 1-D."""
    rank = b.rank(gradient)
    if rank == 1:
        return b.reduce_sum(gradient)
    if not rank:
        return b.reshape(b.reduce_sum(gradient, keepdims=False), [1])
    return b.reduce_sum(gradient, range(1, rank), keepdims=False)
