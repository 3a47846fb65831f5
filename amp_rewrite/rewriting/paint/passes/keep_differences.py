"""Differences of large numbers stay float32 where what remains counts.

- |x|^2 - 2 x y^T + |y|^2, squared distances: a product that meets, in a sum, the sum of squares of
  one of its own operands.
- A root, a logarithm or a reciprocal of a difference: sqrt(max(0, c - k K k^T)), or a variance as
  mean(x^2) - mean(x)^2. Both sides are float32, back to the last layer or function, or to what both
  are made of.
- One less the cosine of two vectors, back to the vectors. Float16 is 0.0005 apart near one, and one
  less the cosine of vectors that differ by 1 % is 0.00005.

Evidence: of the neighbours of a car at 35 m a fifth are right in float16 without the pass; the
deviation of a Gaussian process is 0 without it, 0.108 with it and in float32; one less the cosine
of pairs 1 % apart: error 100 % without it, 0 with it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from amp_rewrite.graph.flat import ABSENT, Array
from amp_rewrite.graph.traits import Trait, having
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Reason, Stage, keep
from amp_rewrite.rewriting.paint.match import ADDED, FARTHEST, MOVED, PRODUCTS, SIGNED, Worklist

# operators: what may turn a small error of a difference into a large one.
_ROOTS = ("Sqrt", "Log", "Reciprocal", "Pow", "Div")
# operators: what may stand between a root and a difference.
_KEEPS = SIGNED | ADDED | {"Clip", "Max", "Min", "Relu"}
# what may stand between a sum with squares and a product.
_ADDENDS = MOVED | ADDED | {"Neg"}
# operators: those that hand on a sum of squares, besides factors.
_GOING_ON = having(Trait.MOVES, Trait.CASTS, Trait.ADDS) | {"Sub", "Neg", "Pow", "ReduceSum"}
# operators: those that square what they read and add it up, besides products.
_SQUARE = ("ReduceL2", "ReduceSumSquare")
# operators: those that add up squares, besides products.
_SQUARED = (*_SQUARE, "ReduceMean", "ReduceSum")
_STEPS = 12
"""Nodes that are followed at most from a sum of squares to the sum in which it meets a product."""

# operators: those that a norm is made by.
_NORMS = frozenset({"LpNormalization", "ReduceL2", "Sqrt", "Pow"})
# operators: what may stand around the products of a cosine.
_SCALING = SIGNED | {"Clip", "Max", "Min", "Mul", "Div", "Pow", "Reciprocal"}
_COSINE = _SCALING | _NORMS | having(Trait.SUMS_UP) | ADDED

_Squares = tuple[int, list[int]]
"""The base of a square, or of a sum of squares, and the nodes that make it of that."""


@keep("keep-differences", Reason.DIFFERENCE, Stage.GIVEN, 10)
def keep_differences(m: Match, _: Ask) -> Kept:
    """Mark differences of large numbers, and what computes them."""
    yield from _expansions(m)
    yield from _roots(m)
    yield from _cosines(m)


# What a root, a logarithm or a reciprocal reads.


def _roots(m: Match) -> Iterator[Keep]:
    """Yield differences behind which a small absolute error counts."""
    for root in m.nodes(*_ROOTS):
        argument = _argument(m, root)
        for node, way in m.ways(argument, _KEEPS) if argument != ABSENT else ():
            sides = sides_of(m, node)
            if sides:
                nodes = [root, *way, node, *_behind_both(m, sides)]
                yield Keep(f"a difference in front of {m.name(root)}", nodes)
                break


def _argument(m: Match, root: int) -> int:
    """Return what a root, logarithm or reciprocal reads; ABSENT for another power or quotient."""
    base, powers = m.power(root)
    is_root = powers is not None and powers.max() < 1
    return m.read(root)[0] if m.is_a(root, "Log") else base if is_root else ABSENT


def sides_of(m: Match, node: int) -> list[int]:
    """Return the operands of a difference, none of another node; one may be a constant."""
    read = m.data(node)
    if m.op(node) not in ADDED or len(read) < 2:
        return []
    return read if m.is_a(node, "Sub") or any(_is_negative(m, v) for v in read) else []


def _is_negative(m: Match, value: int) -> bool:
    """Tell whether a value is taken away where it is added: it is negated or scaled so."""
    return bool(m.negated) and m.source(value) in m.negated


def _behind_both(m: Match, sides: list[int]) -> list[int]:
    """Return what computes the sides of a difference, but not what both are made of."""
    reached = [m.formula(value).values for value in sides]
    common = {v for k, a in enumerate(reached) for b in reached[:k] for v in a & b}
    return [n for value in sides for n in m.formula(value, stops=common).nodes]


# What meets the squares of its own operand.


def _expansions(m: Match) -> Iterator[Keep]:
    """Yield products that meet the sum of squares of one of their operands."""
    if not m.nodes(*PRODUCTS):
        return
    squares = bool(m.nodes("Mul", "Pow"))  # whether anything may be squared in front of a sum
    of_one_sign = _of_one_sign(m)
    for node in m.nodes(*PRODUCTS, *(_SQUARED if squares else _SQUARE)):
        summed = _squared(m, node, squares)
        if summed is not None:
            yield from _met_by(m, node, *summed)
        if of_one_sign and m.op(node) in PRODUCTS:
            yield from _meeting_constants(m, node, of_one_sign)


def _squared(m: Match, node: int, squares: bool) -> _Squares | None:
    """Return what a node sums up the squares of, and the nodes that make these; or None."""
    read, square = m.data(node), None
    if m.op(node) in PRODUCTS:
        if len(read) > 1 and not m.is_constant(read[1]):
            base = m.base(read[0])
            return (base, [node, *m.between(*read[:2])]) if base == m.base(read[1]) else None
        square = _square(m, read[0]) if len(read) > 1 and squares else None
    elif m.is_a(node, *_SQUARE):
        return (m.base(read[0]), [node, *m.between(read[0])]) if read else None
    elif read:  # whole numbers are none
        square = _square(m, read[0]) or _diagonal(m, read[0])
    return None if square is None else (square[0], [node, *square[1]])


def _square(m: Match, value: int) -> _Squares | None:
    """Return what a value is the square of, and the nodes that make it; None for no square."""
    node = m.maker(m.base(value))
    raised, powers = m.power(node)
    if powers is None or not np.all(powers == 2):
        return None
    base = m.base(raised)
    same = [v for v in m.read(node) if m.base(v) == base]
    return base, [*m.between(value), node, *m.between(*same)]


def _diagonal(m: Match, value: int) -> _Squares | None:
    """Return what a product with itself was made of, and the nodes, where a value masks it.

    Squared lengths as the sum of the Gram matrix times the unit matrix.
    """
    nodes, product = m.between(value), m.maker(m.base(value))
    factors = m.factors(product)
    if len(factors) < 2 or m.base(factors[0]) != m.base(factors[1]):
        return None
    held = [m.stored(scaled[1]) for n in nodes if (scaled := m.factor(n)) is not None]
    if not any(tensor is not None and tensor.size > 1 for tensor in held):
        return None
    return m.base(factors[0]), [*nodes, product, *m.between(*factors)]


def _met_by(m: Match, node: int, base: int, squares: list[int]) -> Iterator[Keep]:
    """Yield the products that a sum of squares meets, with the way to them."""
    todo, way_to = Worklist(m.made(node)), {m.made(node): list[int]()}
    for value in todo:
        way = way_to[value]
        for reader in m.readers(value):
            for product, between in _products_beside(m, reader, value, node, base):
                moved = m.between(*m.factors(product))
                nodes = [*squares, *way, reader, *between, product, *moved]
                yield Keep(_met(m, product, base), nodes)
            if len(way) < _STEPS and _goes_on(m, reader):
                way_to |= {v: [*way, reader] for v in todo.add([m.made(reader)])}


def _goes_on(m: Match, reader: int) -> bool:
    """Tell whether what reads a sum of squares hands it on: it moves, scales or adds."""
    if m.op(reader) in _GOING_ON or m.factor(reader) is not None:
        return True
    # the square of a norm
    return m.is_a(reader, "Mul") and len({m.base(v) for v in m.read(reader)}) == 1


def _products_beside(
    m: Match, reader: int, value: int, origin: int, base: int
) -> Iterator[_Squares]:
    """Yield the products of `base` that a reader of its squares adds to them, and the way."""
    if m.op(reader) in PRODUCTS:
        # The addend of a Gemm, or squares that stand beside what they are of in one operand.
        meets = _is_of if value in m.read(reader)[2:] else _holds
        if any(meets(m, v, base) for v in m.factors(reader)):
            yield reader, []
    for other in m.data(reader) if m.op(reader) in ADDED else ():
        for node, way in m.ways(other, _ADDENDS):
            if node != origin and any(_is_of(m, v, base) for v in m.factors(node)):
                yield node, way


def _is_of(m: Match, value: int, base: int) -> bool:
    """Tell whether a value is a base, moved or scaled, or a constant that holds its numbers."""
    own = m.base(value)
    if own == base or not (m.is_constant(own) and m.is_constant(base)):
        return own == base
    first, second = m.array(own), m.array(base)
    if first is None or second is None or first.ndim != 2 or first.size != second.size:
        return False
    if first.shape != second.shape:
        first = first.T
    return first.shape == second.shape and _is_multiple(first, second)


def _holds(m: Match, value: int, base: int) -> bool:
    """Tell whether a Concat, perhaps moved, has `base` beside its squares."""
    node = m.maker(m.base(value))
    return m.is_a(node, "Concat") and any(m.base(v) == base for v in m.data(node))


def _of_one_sign(m: Match) -> set[int]:
    """Return the constants that are added somewhere and may be squares: a bias has either sign."""
    added = (v for node in m.nodes(*ADDED) for v in m.data(node))
    third = (v for node in m.nodes(*PRODUCTS) for v in m.read(node)[2:3])
    found = set[int]()
    for value in dict.fromkeys((*added, *third)):
        sums = m.array(value) if m.is_constant(value) else None
        if sums is not None and sums.size > 1 and (sums.min() > 0 or sums.max() < 0):
            found.add(value)
    return found


def _meeting_constants(m: Match, product: int, of_one_sign: set[int]) -> Iterator[Keep]:
    """Yield a product to which the squares of its weights are added."""
    weights = [v for v in m.factors(product) if m.is_constant(v)]
    for addend, way in _constant_addends(m, product) if len(weights) == 1 else ():
        if addend in of_one_sign and _sums_squares(m, weights[0], addend):
            nodes = [product, *way, *m.between(*m.factors(product))]
            yield Keep(_met(m, product, weights[0]), nodes)
            return


def _constant_addends(m: Match, product: int) -> Iterator[_Squares]:
    """Yield the constants that are added to a product, with the nodes up to their sum."""
    for value in m.read(product)[2:3]:
        if m.is_constant(value):
            yield value, []
    value, way = m.made(product), list[int]()
    while len(way) < _STEPS and len(readers := m.readers(value)) == 1:
        (reader,) = readers
        way = [*way, reader]
        if m.op(reader) in ADDED:
            addends = (v for v in m.data(reader) if v != value and m.is_constant(v))
            yield from ((addend, way) for addend in addends)
        elif m.factor(reader) is None and m.op(reader) not in MOVED:
            return
        value = m.made(reader)


def _sums_squares(m: Match, weight: int, addend: int) -> bool:
    """Tell whether a constant is, but for one factor, the sums of squares of a weight."""
    sums, matrix = m.array(addend), m.array(weight)
    if sums is None or matrix is None or matrix.ndim < 2:
        return False
    squares = np.square(matrix)
    flat_sums = sums.reshape(-1)
    rows = (squares.sum(axis=-2), squares.sum(axis=-1), squares.reshape(len(matrix), -1).sum(1))
    for row in (row.reshape(-1) for row in rows):
        if row.size == flat_sums.size and row.all() and _is_multiple(flat_sums, row):
            return True
    return False


def _met(m: Match, product: int, operand: int) -> str:
    name = m.flat.value_names[operand]
    return f"{m.name(product)} meets the sum of the squares of {name}"


def _is_multiple(numbers: Array, others: Array) -> bool:
    """Tell whether numbers are others of the same shape times one factor, but for rounding."""
    largest = np.abs(others).argmax()
    factor = numbers.flat[largest] / others.flat[largest] if others.flat[largest] else 0
    scaled = factor * others
    return bool(factor) and bool((np.abs(numbers - scaled) <= 1e-3 * np.abs(scaled)).all())


# What is one less a cosine.


def _cosines(m: Match) -> Iterator[Keep]:
    """Yield what takes a cosine from one, with what computes the cosine."""
    added = m.nodes(*ADDED)
    held = dict.fromkeys(v for node in added for v in m.read(node) if m.is_constant(v))
    one = {v for v in held if (n := m.numbers(v)) is not None and (abs(n) == 1).all()}
    for node in added if one else ():
        ones = [v for v in m.read(node) if v in one]
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
        if node != ABSENT and (m.has(node, Trait.SUMS_UP) or m.op(node) in PRODUCTS):
            yield _is_of_cosine(m, node)
        elif m.op(node) in _SCALING:
            todo.add(m.data(node)[:1] if m.is_a(node, "Div", "Pow") else m.data(node))


def _is_of_cosine(m: Match, node: int) -> bool:
    """Tell whether a node may be part of a cosine: a layer is not, unless what it reads is."""
    if m.op(node) not in PRODUCTS:
        return m.op(node) in _COSINE
    data = [v for v in m.factors(node) if not m.is_constant(v)]
    normalised = (m.is_a(m.maker(m.base(v)), "Div", "LpNormalization", "Mul") for v in data)
    return len(data) == 2 or any(normalised)
