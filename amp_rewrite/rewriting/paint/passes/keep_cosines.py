"""One less a cosine stays float32, with the cosine: of near pairs the difference is its rounding.

The cosine of two vectors is their product over their norms, or the product of vectors that are
divided by their norms first. Its float16 neighbours near one are 0.0005 apart, and one less the
cosine of vectors that differ by 1 % is 0.00005. All is float32 back to the vectors; a layer that
gives them is not. A cosine that nothing is taken from is left alone.

Evidence: one less the cosine of pairs 1 % apart in float16: error 100 % without the pass, 0 with
it.
"""

from __future__ import annotations

from collections.abc import Iterator

from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.traits import Trait, having
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, PassReason, Stage, keep
from amp_rewrite.rewriting.paint.match import ADDED, FARTHEST, PRODUCTS, SIGNED, Worklist

# operators: those that a norm is made by.
_NORMS = frozenset({"LpNormalization", "ReduceL2", "Sqrt", "Pow"})
_SUMS = having(Trait.SUMS_UP)
# operators: what may stand around the products of a cosine.
_HANDING_ON = SIGNED | {"Clip", "Max", "Min", "Mul", "Div", "Pow", "Reciprocal"}
_COSINE = _HANDING_ON | _NORMS | _SUMS | ADDED


@keep(
    "keep-cosines",
    PassReason(
        "cosine",
        phrase="one less a cosine cancels where vectors are near",
        plain="takes a cosine from one, which cancels in {precision} where vectors are near",
        danger=True,
    ),
    Stage.GIVEN,
    14,
    "cosines that are taken from one, before the first round "
    "([below](#differences-states-and-phases))",
)
def keep_cosines(m: Match, _: Ask) -> Kept:
    """Mark one less a cosine, with what computes the cosine."""
    for node in m.nodes(*ADDED):
        ones = [v for v in m.read(node) if (n := m.numbers(v)) is not None and (abs(n) == 1).all()]
        others = [v for v in m.data(node) if v not in ones]
        if len(ones) != 1 or len(others) != 1 or not any(_products(m, others[0])):
            continue
        region = m.behind(*others, enters=lambda n: _is_of_cosine(m, n) or None, most=FARTHEST)
        if any(m.op(n) in _NORMS for n in region.nodes):
            yield Keep(f"a cosine is taken from one in {m.name(node)}", [node, *region.nodes])


def _products(m: Match, value: int) -> Iterator[bool]:
    """Yield True for each sum of products that a value is, moved, scaled or divided."""
    todo = Worklist(value, most=FARTHEST)
    for v in todo:
        node = m.maker(v)
        if node != ABSENT and (m.op(node) in _SUMS or m.op(node) in PRODUCTS):
            yield _is_of_cosine(m, node)
        elif m.op(node) in _HANDING_ON:
            todo.add(m.data(node)[:1] if m.is_a(node, "Div", "Pow") else m.data(node))


def _is_of_cosine(m: Match, node: int) -> bool:
    """Tell whether a node may be part of a cosine: a layer is not, unless what it reads is."""
    if m.op(node) not in PRODUCTS:
        return m.op(node) in _COSINE
    data = [v for v in m.factors(node) if not m.is_constant(v)]
    normalised = (m.is_a(m.maker(m.base(v)), "Div", "LpNormalization", "Mul") for v in data)
    return len(data) == 2 or any(normalised)
