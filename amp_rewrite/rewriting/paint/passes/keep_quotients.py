"""Products of activations whose size only their quotient bounds stay float32.

Linear attention is relu(q) (relu(k)^T v) over relu(q) (relu(k)^T 1): the scale of q and k drops out
of the quotient, hence no training keeps the products small. EfficientViT's leave float16 on
ordinary images (Cai et al., 2023, https://arxiv.org/abs/2205.14756). A product with a reciprocal
is a quotient, too; the reciprocal of a small sum is out of range unless a guard keeps it.

Evidence: linear attention whose activations are large, float16: NaN without the pass, right with it
(tests/conformance/test_public_formulas.py); a Performer whose reciprocal is an operand of an
Einsum: 1,280 of 1,280 elements are NaN without it, none with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.traits import Trait, having
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Need, Reason, Stage, keep
from amp_rewrite.rewriting.paint.masks import softmaxes
from amp_rewrite.rewriting.paint.match import ADDED, PRODUCTS, SIGNED, Worklist

# operators: those that leave the scale of what they read what it is.
_SCALED = (SIGNED | ADDED | having(Trait.SUMS_UP) | {"Clip", "Max", "Mul", "Relu"}) - {"Sub"}
_FACTORS = 2
"""How many products are followed behind a quotient."""


# operators: those that hand on a quotient, or cut it off.
_PASSED = SIGNED | {"Clip", "Max", "Min"}


class _Quotient(NamedTuple):
    """A node that divides: a Div, or a product with a reciprocal or a power below zero.

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


@keep("keep-quotients", Reason.LIKELY_OVERFLOW, Stage.KEEPING, 60, needs=Need.RANGE)
def keep_quotients(m: Match, _: Ask) -> Kept:
    """Unpaint a quotient of products of the same activations, and these products."""
    for q in _quotients(m):  # the last one is told
        if m.is_part(q.node):
            continue  # a training step has loss scaling, and `keep-steep-gradients`
        above, below = (
            m.behind(*values, enters=lambda n: _multiplies(m, n) or m.op(n) in _SCALED)
            for values in (q.dividends, (q.divisor,))
        )
        products = {n for n in (q.node, *above.nodes) if _multiplies(m, n)}
        divided = [n for n in below.nodes if _multiplies(m, n)]
        is_open = (len(products) > 1 and (not q.way or bool(divided))) or (
            q.inverts and _is_small(m, q)
        )
        if is_open and not above.ends.isdisjoint(below.ends):
            outside = m.behind(*q.dividends, q.divisor, enters=lambda n: m.op(n) in _SCALED or None)
            named = ", ".join(m.name(n) for n in sorted(products or {q.node})[:3])
            yield Keep(
                f"nothing bounds products of activations ({named}) but their quotient "
                f"{m.name(q.node)}, {m.low.name} ends at {m.low.max:.6g}",
                {q.node, *q.way, *outside.nodes, *products, *divided},
            )


def _multiplies(m: Match, node: int) -> bool:
    """Tell whether a node adds up products of activations: no operand of it is a weight."""
    if m.op(node) in PRODUCTS:
        return not any(map(m.is_constant, m.data(node)))
    product = m.maker(m.source(m.read(node)[0])) if m.has(node, Trait.SUMS_UP) else ABSENT
    is_scaled = m.factor(product) is not None or m.power(product)[1] is not None
    return m.is_a(product, "Mul") and not is_scaled


def _is_small(m: Match, q: _Quotient) -> bool:
    """Tell whether a divisor may be so small that its reciprocal is out of range."""
    if m.facts.guards.of(q.divisor) * m.low.overflow > 1:
        return False
    total = m.maker(m.source(q.divisor))
    exponential = m.maker(m.source(m.read(total)[0])) if m.has(total, Trait.SUMS_UP) else ABSENT
    return all(exponential != node for node, _ in softmaxes(m))


def _quotients(m: Match) -> Iterator[_Quotient]:
    """Yield the quotients by what is no constant, the last one first."""
    for node in reversed(m.nodes("Div", "Exp", "Pow", "Reciprocal")):
        divisor = _inverted(m, node)
        if divisor == ABSENT and m.is_a(node, "Div"):
            first, divisor = m.read(node)
            start = _Quotient(node, (first,), divisor)
            if not m.is_constant(divisor):
                yield start
                yield from _multiplied(m, start)
        elif divisor != ABSENT and not m.is_constant(divisor):
            yield from _multiplied(m, _Quotient(node, (), divisor, (), inverts=True))


def _inverted(m: Match, node: int) -> int:
    """Return that of which a node is the reciprocal or a power below zero, or ABSENT."""
    if m.is_a(node, "Exp"):  # of minus a logarithm
        logarithm = m.maker(m.base(m.read(node)[0]))
        return m.read(logarithm)[0] if m.is_a(logarithm, "Log") else ABSENT
    base, powers = m.power(node)
    return base if powers is not None and bool((powers < 0).all()) else ABSENT


def _multiplied(m: Match, start: _Quotient) -> Iterator[_Quotient]:
    """Yield the products of a quotient, or a reciprocal, and something that is no constant."""
    todo = Worklist[tuple[int, _Quotient, int]](
        (m.made(start.node), start._replace(way=(start.node,)), _FACTORS)
    )
    for value, found, left in todo:
        for node in m.readers(value):
            read = [v for v in m.data(node) if v != value]
            if m.factor(node) or m.op(node) in _PASSED:
                handed = found._replace(way=(*found.way, node))
                todo.add([(m.made(node), handed, left)])
            elif left and read and _is_product(m, node, read):
                product = found._replace(node=node, dividends=(*found.dividends, *read))
                yield product
                behind = product._replace(way=(*found.way, node))
                todo.add([(m.made(node), behind, left - 1)])


def _is_product(m: Match, node: int, read: list[int]) -> bool:
    is_product = m.is_a(node, "Mul") or m.op(node) in PRODUCTS
    return is_product and not any(map(m.is_constant, read))
