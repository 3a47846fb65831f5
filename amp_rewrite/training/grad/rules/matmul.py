"""Gradients of matrix products; g is the gradient of the output y."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.graph.names import place
from amp_rewrite.training.builder.broadcasting import sum_to
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.grad.rule import Gradients, Rules
from amp_rewrite.training.grad.rules.arithmetic import Received, known, operands


def matmul(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = A B: g B^T, A^T g, for each matrix of a batch.

    Where B is one matrix, A and g are flattened to two axes: one Gemm for B, which needs neither a
    batched product nor a sum. A vector is a matrix of one row (as A) or of one column (as B).
    """
    (x, y), g = operands(node), known(gs[0])
    ranks = b.rank(x), b.rank(y)
    if ranks[0] is None or ranks[1] is None:
        raise GradientError(
            "the ranks of a product's operands are not known",
            where=place(node),
            remedy="record their shapes in the model's value_info; lengths may be symbolic",
        )
    if ranks[0] == 1 and ranks[1] == 1:
        return [b.mul(g, y), b.mul(g, x)]
    if ranks[0] == 1:
        by_x, by_y = _matrices(b, b.unsqueeze(x, [0]), y, b.unsqueeze(g, [-2]))
        return [b.squeeze(by_x, [-2]), by_y]
    if ranks[1] == 1:
        by_x, by_y = _matrices(b, x, b.unsqueeze(y, [1]), b.unsqueeze(g, [-1]))
        return [by_x, b.squeeze(by_y, [-1])]
    return _matrices(b, x, y, g)


def _matrices(b: Builder, x: ir.Value, y: ir.Value, g: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return g y^T and x^T g; no operand has fewer than two axes."""
    if b.rank(y) == 2:
        flat_x, flat_g = _flat(b, x), _flat(b, g)
        by_x = b.reshape_like(b.op("Gemm", flat_g, y, transB=1), x)
        return by_x, b.op("Gemm", flat_x, flat_g, transA=1)
    # ONNX Runtime takes these transpositions into the products (MatmulTransposeFusion).
    return b.matmul(g, _swapped(b, y)), b.matmul(_swapped(b, x), g)


def _flat(b: Builder, x: ir.Value) -> ir.Value:
    """Return x with all axes but the last made one."""
    rank = len(b.dims(x) or ())
    return x if rank == 2 else b.op("Flatten", x, axis=rank - 1)


def _swapped(b: Builder, x: ir.Value) -> ir.Value:
    """Return x with its last two axes exchanged."""
    rank = len(b.dims(x) or ())
    return b.transpose(x, [*range(rank - 2), rank - 1, rank - 2])


def gemm(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = alpha A' B' + beta C, ' a transposition or none: alpha g B'^T, alpha A'^T g, beta g."""
    x, y = operands(node)[:2]
    g, attributes = known(gs[0]), node.attributes
    alpha = attributes.get_float("alpha", 1.0)
    turn_x, turn_y = attributes.get_int("transA", 0), attributes.get_int("transB", 0)
    if turn_x:
        by_x = b.op("Gemm", y, g, alpha=alpha, transA=turn_y, transB=1)
    else:
        by_x = b.op("Gemm", g, y, alpha=alpha, transB=1 - turn_y)
    if turn_y:
        by_y = b.op("Gemm", g, x, alpha=alpha, transA=1, transB=turn_x)
    else:
        by_y = b.op("Gemm", x, g, alpha=alpha, transA=1 - turn_x)
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return [by_x, by_y]
    by_c = sum_to(b, g, node.inputs[2])
    beta = attributes.get_float("beta", 1.0)
    return [by_x, by_y, by_c if beta == 1 else b.mul(by_c, beta)]


RULES: Rules = {"MatMul": matmul, "Gemm": gemm}
