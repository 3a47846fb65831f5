"""Quotients, however they are spelled: Div, or a product with a reciprocal, a power below zero.

A product behind a quotient is one as well: (a / b) c is a c / b.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.rewriting.paint.match import PRODUCTS, SIGNED, Chains, Worklist

_FACTORS = 2
"""How many products are followed behind a quotient."""


# operators: those that hand on a quotient, or cut it off.
_PASSED = SIGNED | {"Clip", "Max", "Min"}


class Quotient(NamedTuple):
    """A node that divides.

    Attributes:
        node: The node: a Div, or a product.
        dividends: What it multiplies, but for the quotient or reciprocal that it reads.
        divisor: What it divides by.
        way: The quotient or reciprocal that a product reads, and what moves it; none for a Div.
        inverts: Whether it multiplies by a reciprocal, which may leave the range.
    """

    node: int
    dividends: tuple[int, ...]
    divisor: int
    way: tuple[int, ...] = ()
    inverts: bool = False


def quotients(m: Chains) -> Iterator[Quotient]:
    """Yield the quotients by what is no constant, the last one first."""
    for node in reversed(m.nodes("Div", "Exp", "Pow", "Reciprocal")):
        divisor = _inverted(m, node)
        if divisor == ABSENT and m.is_a(node, "Div"):
            first, divisor = m.read(node)
            start = Quotient(node, (first,), divisor)
            if not m.is_constant(divisor):
                yield start
                yield from _multiplied(m, start)
        elif divisor != ABSENT and not m.is_constant(divisor):
            yield from _multiplied(m, Quotient(node, (), divisor, (), inverts=True))


def _inverted(m: Chains, node: int) -> int:
    """Return that of which a node is the reciprocal or a power below zero, or ABSENT."""
    first, *others = m.read(node)
    if m.is_a(node, "Div"):
        return others[0] if m.is_constant(first) else ABSENT
    if m.is_a(node, "Exp"):  # of minus a logarithm
        logarithm = m.maker(m.base(first))
        return m.read(logarithm)[0] if m.is_a(logarithm, "Log") else ABSENT
    numbers = m.numbers(others[0]) if others else None
    is_negative = numbers is not None and bool((numbers < 0).all())
    return first if is_negative or m.is_a(node, "Reciprocal") else ABSENT


def _multiplied(m: Chains, start: Quotient) -> Iterator[Quotient]:
    """Yield the products of a quotient, or a reciprocal, and something that is no constant."""
    todo = Worklist[tuple[int, Quotient, int]](
        (m.made(start.node), start._replace(way=(start.node,)), _FACTORS)
    )
    for value, found, left in todo:
        for node in m.readers(value):
            read = [v for v in m.data(node) if v != value]
            if m.factor(node) or m.op(node) in _PASSED:
                handed = found._replace(way=(*found.way, node))
                todo.add([(m.made(node), handed, left)])
            elif left and read and _multiplies(m, node, read):
                product = found._replace(node=node, dividends=(*found.dividends, *read))
                yield product
                behind = product._replace(way=(*found.way, node))
                todo.add([(m.made(node), behind, left - 1)])


def _multiplies(m: Chains, node: int, read: list[int]) -> bool:
    is_product = m.is_a(node, "Mul") or m.op(node) in PRODUCTS
    return is_product and not any(map(m.is_constant, read))
