"""Gradients of MatMul, Gemm and Einsum; g is the gradient of the output y."""

from __future__ import annotations

import string
from collections.abc import Sequence
from itertools import pairwise

import onnx_ir as ir

from amp_rewrite.grad.builder.broadcasting import sum_to
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import Length
from amp_rewrite.grad.rule import Gradients, Rules
from amp_rewrite.grad.rules.arithmetic import Received, known, operands, rank_of

_ELLIPSIS = "..."


def matmul(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = A B: g B^T, A^T g, for each matrix of a batch.

    Where B is one matrix, A and g are flattened to two axes: one Gemm for B, which needs neither a
    batched product nor a sum, nor the rank of A. A vector is a matrix of one row (as A) or of one
    column (as B).
    """
    (x, y), g = operands(node), known(gs[0])
    if b.rank(x) is None and b.rank(y) == 2:
        return _matrices(b, x, y, g)
    ranks = rank_of(node, b, x), rank_of(node, b, y)
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
        flat_x, flat_g = _flat(b, x, b.dim(y, 0)), _flat(b, g, b.dim(y, 1))
        by_x = b.reshape_like(b.op("Gemm", flat_g, y, transB=1), x)
        return by_x, b.op("Gemm", flat_x, flat_g, transA=1)
    # ONNX Runtime takes these transpositions into the products (MatmulTransposeFusion).
    return b.matmul(g, _swapped(b, y)), b.matmul(_swapped(b, x), g)


def _flat(b: Builder, x: ir.Value, last: ir.Value) -> ir.Value:
    """Return x with all axes but the last, of a known length, made one."""
    rank = b.rank(x)
    if rank is None:
        return b.reshape(x, b.concat([b.constant([-1]), last], 0))
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


def einsum(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """For each operand, the Einsum of the other operands and g whose output is its term.

    Letters that occur in one operand only were summed: its gradient is the same along them. Where
    a letter occurs twice in one operand, only its diagonal was read: the rest gets zero.
    """
    inputs, g = operands(node), known(gs[0])
    terms, output = _terms(node, b, inputs)
    gradients: list[ir.Value] = []
    for index, (value, term) in enumerate(zip(inputs, terms, strict=True)):
        others = [*terms[:index], *terms[index + 1 :], output]
        values = [*inputs[:index], *inputs[index + 1 :], g]
        gradients.append(_gradient(b, value, term, others, values))
    return gradients


def _gradient(
    b: Builder, x: ir.Value, term: str, others: Sequence[str], values: Sequence[ir.Value]
) -> ir.Value:
    """Return the gradient of one operand out of the other operands and g."""
    letters = "".join(dict.fromkeys(term))
    present = "".join(c for c in letters if any(c in other for other in others))
    equation = f"{','.join(others)}->{present}"
    if len(others) == 1 and others[0] == present:
        gradient = values[0]
    else:
        gradient = b.op("Einsum", *values, equation=equation)
        _record_broadcast(b, gradient, present, others, values)
    gradient = b.unsqueeze(gradient, [k for k, c in enumerate(letters) if c not in present])
    if letters == term:
        return gradient if present == term else b.expand(gradient, b.shape(x))
    return _on_diagonal(b, gradient, x, term, letters)


def _record_broadcast(
    b: Builder, product: ir.Value, present: str, terms: Sequence[str], values: Sequence[ir.Value]
) -> None:
    """Record the shape of an Einsum in which a letter has length 1 in one operand and not in all.

    onnx 1.23.2 infers the length of the first operand that has the letter.
    """
    lengths: dict[str, set[Length]] = {}
    for term, value in zip(terms, values, strict=True):
        for letter, length in zip(term, b.symbolic_dims(value) or [None] * len(term), strict=True):
            lengths.setdefault(letter, set()).add(length)
    if any(1 in lengths[letter] and len(lengths[letter]) > 1 for letter in present):
        longer = [lengths[letter] - {1} or {1} for letter in present]
        product.shape = ir.Shape([next(iter(n)) if len(n) == 1 else None for n in longer])


def _on_diagonal(b: Builder, gradient: ir.Value, x: ir.Value, term: str, letters: str) -> ir.Value:
    """Return zeros of the shape of x with a gradient where the axes of equal letters agree."""
    first = [term.index(c) for c in letters]
    repeated = [axis for axis in range(len(term)) if axis not in first]
    ordered = b.transpose(gradient, sorted(range(len(first)), key=first.__getitem__))
    spread = b.expand(b.unsqueeze(ordered, repeated), b.shape(x))
    for letter in letters:
        axes = [axis for axis, c in enumerate(term) if c == letter]
        for one, other in pairwise(axes):
            agree = b.equal(*(_positions(b, x, axis) for axis in (one, other)))
            spread = b.where(agree, spread, 0)
    return spread


def _positions(b: Builder, x: ir.Value, axis: int) -> ir.Value:
    """Return 0, 1, .. along an axis of x, in the rank of x."""
    count = b.range(0, b.squeeze(b.dim(x, axis), [0]))
    rank = len(b.dims(x) or ())
    return b.unsqueeze(count, [k for k in range(rank) if k != axis])


def _terms(node: ir.Node, b: Builder, inputs: Sequence[ir.Value]) -> tuple[list[str], str]:
    """Return the terms and the output, with letters in place of an ellipsis."""
    equation = "".join(node.attributes["equation"].as_string().split())
    left, arrow, output = equation.partition("->")
    terms = left.split(",")
    ranks = [rank_of(node, b, v) if _ELLIPSIS in equation else 0 for v in inputs]
    free = [c for c in string.ascii_letters if c not in equation]
    hidden = [r - len(t.replace(_ELLIPSIS, "")) for t, r in zip(terms, ranks, strict=True)]
    batch = "".join(free[: max(0, *hidden)])
    if not arrow:
        once = sorted(c for c in set(left) - set(",.") if left.count(c) == 1)
        output = (_ELLIPSIS if _ELLIPSIS in left else "") + "".join(once)
    explicit = [
        term.replace(_ELLIPSIS, batch[len(batch) - max(count, 0) :])
        for term, count in zip(terms, hidden, strict=True)
    ]
    return explicit, output.replace(_ELLIPSIS, batch)


RULES: Rules = {
    "Einsum": einsum,
    "Gemm": gemm,
    "MatMul": matmul,
}
