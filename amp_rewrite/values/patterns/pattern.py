"""Patterns: a group of nodes, written as the expression that it computes.

    x = Value("x")
    silu = Pattern("SiLU", Op("Mul", x, Op("Sigmoid", x)), anchor="Sigmoid")

A term stands for a value: the result of an operator, a number, or anything at all. A name that
occurs twice stands for one value. A term that occurs twice may be one node or two that compute the
same, for runtimes merge these first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from amp_rewrite.values.patterns.plain_view import PlainView

Condition = Callable[[PlainView, int], bool]
"""A condition on a node, or a value, beyond its place in the expression."""


@dataclass(frozen=True, slots=True)
class Value:
    """Any value; two with one name are the same one.

    Attributes:
        name: What a match calls it.
        holds: What is asked of it, or None.
    """

    name: str
    holds: Condition | None = None


@dataclass(frozen=True, slots=True)
class Number:
    """A constant of one element with this value, as exact as types and exporters are."""

    value: float


@dataclass(frozen=True, slots=True, init=False)
class Op:
    """The first result of a node that calls an operator of ai.onnx.

    Attributes:
        op_type: The operator.
        operands: Its first operands, in either order if the operator adds or multiplies.
        is_tail: Whether the node is part of the tail: a runtime that fuses the group takes a Cast
            in front of the tail with it.
        holds: What is asked of the node, or None.
    """

    op_type: str
    operands: tuple[Term, ...]
    is_tail: bool
    holds: Condition | None

    def __init__(
        self,
        op_type: str,
        *operands: Term,
        is_tail: bool = False,
        holds: Condition | None = None,
    ) -> None:
        """Make a term; operands come one by one."""
        object.__setattr__(self, "op_type", op_type)
        object.__setattr__(self, "operands", operands)
        object.__setattr__(self, "is_tail", is_tail)
        object.__setattr__(self, "holds", holds)


Term = Value | Number | Op


@dataclass(frozen=True, slots=True)
class Pattern:
    """A form of a group.

    Attributes:
        name: What the group computes; several forms may have one name.
        root: The expression.
        anchor: The operator at which the search begins: one that is rare in models and occurs once
            in the expression.
    """

    name: str
    root: Op
    anchor: str

    def path(self) -> tuple[str, ...]:
        """Return the operators from behind the anchor to the root.

        Raises:
            ValueError: The expression has no such operator.
        """
        for path in _paths(self.root, self.anchor):
            return path
        raise ValueError(f"pattern {self.name} has no {self.anchor}")


def _paths(term: Term, anchor: str) -> Iterator[tuple[str, ...]]:
    """Yield the operators on each way from an anchor up to and including a term."""
    if not isinstance(term, Op):
        return
    if term.op_type == anchor:
        yield ()
        return
    for operand in term.operands:
        for path in _paths(operand, anchor):
            yield (*path, term.op_type)
