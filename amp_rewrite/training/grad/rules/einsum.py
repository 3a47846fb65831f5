"""Gradient of Einsum."""

from __future__ import annotations

import string
from collections.abc import Sequence
from itertools import pairwise

import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.graph.names import place
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.grad.rule import Gradients, Rules
from amp_rewrite.training.grad.rules.arithmetic import Received, known, operands

_ELLIPSIS = "..."


def einsum(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """For each operand, the Einsum of the other operands and g whose output is its term.

    Letters that occur in one operand only were summed: its gradient is the same along them. Where
    a letter occurs twice in one operand, only its diagonal was read: the rest gets zero.
    """
    inputs, g = operands(node), known(gs[0])
    terms, output = _terms(node, b, inputs)
    found: list[ir.Value] = []
    for index, (value, term) in enumerate(zip(inputs, terms, strict=True)):
        others = [*terms[:index], *terms[index + 1 :], output]
        values = [*inputs[:index], *inputs[index + 1 :], g]
        found.append(_gradient(b, value, term, others, values))
    return found


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
    gradient = b.unsqueeze(gradient, [k for k, c in enumerate(letters) if c not in present])
    if letters == term:
        return gradient if present == term else b.expand(gradient, b.shape(x))
    return _on_diagonal(b, gradient, x, term, letters)


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
    """Return the terms with an output and letters for what an ellipsis stands for."""
    equation = "".join(node.attributes["equation"].as_string().split())
    left, arrow, output = equation.partition("->")
    terms = left.split(",")
    ranks = [b.rank(v) for v in inputs]
    known_ranks = [r for r in ranks if r is not None]
    if len(known_ranks) < len(ranks) and _ELLIPSIS in equation:
        raise GradientError(
            "an ellipsis needs the rank of every operand",
            where=place(node),
            found=equation,
            remedy="record the operands' shapes in the model's value_info; lengths may be symbolic",
        )
    free = [c for c in string.ascii_letters if c not in equation]
    hidden = max(
        (
            r - len(t.replace(_ELLIPSIS, ""))
            for t, r in zip(terms, ranks, strict=True)
            if r is not None and _ELLIPSIS in t
        ),
        default=0,
    )
    batch = "".join(free[:hidden])
    if not arrow:
        once = sorted(c for c in set(left) - set(",.") if left.count(c) == 1)
        output = (_ELLIPSIS if _ELLIPSIS in left else "") + "".join(once)
    explicit: list[str] = []
    for term, rank in zip(terms, ranks, strict=True):
        count = (rank or 0) - len(term.replace(_ELLIPSIS, ""))
        explicit.append(term.replace(_ELLIPSIS, batch[len(batch) - count :] if count > 0 else ""))
    return explicit, output.replace(_ELLIPSIS, batch)


RULES: Rules = {"Einsum": einsum}
