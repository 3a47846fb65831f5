"""Whether gradients are finite, decided by sums: the same whatever is fetched."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import onnx_ir as ir

from amp_rewrite.graph.step_part import Part
from amp_rewrite.graph.traverse import ancestors, remove_unused_nodes
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.graph.prepare import record_types
from amp_rewrite.training.loss_scaling.gradients import is_check, is_finite
from amp_rewrite.training.optimizers.conditional_update import conditional

_SCOPE = "finite"

# operators: those that a global norm is made of.
_OF_NORMS = "Cast Div ReduceSumSquare Sqrt Sum"


def check_by_sums(model: ir.Model, updates: Collection[str]) -> None:
    """Let sums of gradients say whether they are finite, where a norm does, in place.

    A sum is finite only if every element is: infinities of both signs make NaN. Unlike the norm it
    does not overflow before the sum of magnitudes exceeds the largest number. Where the norm is
    computed anyway, because it is fetched, a finite one proves that the sum is finite too (it
    bounds the mean of the magnitudes), and the sums are computed only if it is not: they decide in
    both cases, and a fetch changes no step. A norm that the updates are made of stays the check:
    what clipping by it makes of an infinite one is not a number.

    ONNX Runtime's CPU provider sums rows on all threads, close to where the gradient was computed,
    but squares and sums a whole tensor on one: a step of benchmarks/bench_loss_scaling.py's MLP
    takes 3 % less by sums. The model computes what it needs and nothing else; `updates` are its
    next states.
    """
    checks = [node for node in model.graph if is_check(node)]
    norms = [norm for check in checks if (norm := _norm_of(check)) is not None]
    candidates = [norm for norm in norms if not _is_applied(model.graph, norm, updates)]
    if not candidates:
        return
    record_types(model)
    # A step without control flow stays so.
    mode = "if" if any(node.op_type == "If" for node in model.graph) else "select"
    b = Builder(model, scope=_SCOPE, part=Part.LOSS_SCALE)
    for norm in candidates:
        before = set(model.graph)
        total = b.op("Abs", _total(b, norm.gradients))
        if norm.is_shared:
            choice = conditional(
                b,
                is_finite(b, norm.value),
                {_SCOPE: norm.value},
                {_SCOPE: total},
                mode,
                movable=lambda node, before=before: node not in before,
            )
            total = choice[_SCOPE]
        norm.check.replace_input_with(0, total)
    remove_unused_nodes(model.graph)
    model.graph.sort()


@dataclass(frozen=True)
class _Norm:
    """A norm that a node checks.

    Attributes:
        check: The node.
        value: The norm.
        nodes: What it is computed by.
        gradients: What it is the norm of.
        is_shared: Whether something else than the check needs it, or what it is computed from.
    """

    check: ir.Node
    value: ir.Value
    nodes: set[ir.Node]
    gradients: list[ir.Value]
    is_shared: bool


def _norm_of(check: ir.Node) -> _Norm | None:
    """Return the norm that a node checks, or None if it is not known to be one."""
    value = check.inputs[0]
    nodes: set[ir.Node] = set()
    gradients: list[ir.Value] = []
    left = [] if value is None else [value]
    while left:
        node = left.pop().producer()
        if node is None or node.domain or node.op_type not in _OF_NORMS.split():
            return None
        nodes.add(node)
        operands = node.inputs if node.op_type == "Sum" else node.inputs[:1]
        (gradients if node.op_type == "ReduceSumSquare" else left).extend(
            v for v in operands if v is not None
        )
    results = [v for node in nodes for v in node.outputs]
    others = {use.node for v in results for use in v.uses()} - nodes - {check}
    shared = bool(others) or any(v.is_graph_output() for v in results)
    return None if value is None else _Norm(check, value, nodes, gradients, shared)


def _is_applied(graph: ir.Graph, norm: _Norm, updates: Collection[str]) -> bool:
    """Return whether next states are computed from a norm, apart from what its check decides."""
    following = [value for value in graph.outputs if value.name in updates]
    needed = ancestors(following, within=set(graph) - {norm.check})
    return bool(needed & norm.nodes)


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
