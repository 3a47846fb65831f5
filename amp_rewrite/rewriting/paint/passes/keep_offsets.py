"""A number far larger than what it is added to stays float32 in front of an output.

h + 2024 keeps steps of 1 in float16. Where rounding the bias takes more than 5 % of a deviation of
what it is added to, the layer is float32, with what follows up to the output; so is a product of an
input with such a bias, (x - 288) / 3 in its weights. A layer is taken to read numbers around 1.

Evidence: a Gemm with the bias 2024 and results 0.5 apart in float16: error 156 % of their spread
without the pass, 0.1 % with it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from amp_rewrite.graph.flat import ABSENT, Array
from amp_rewrite.graph.traits import Trait, having
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Reason, Stage, keep
from amp_rewrite.rewriting.paint.match import ADDED, FARTHEST, MOVED, PRODUCTS, Worklist
from amp_rewrite.rewriting.paint.passes.widen_ends import CHEAP

# operators: those behind which a number that was added is still as large.
_PASSED = (
    CHEAP
    | having(Trait.SUMS_UP, Trait.AVERAGES)
    | {"GlobalMaxPool", "MaxPool", "ReduceMax", "ReduceMin", "Resize", "TopK"}
)

_TAKEN = 0.05
_FEWEST = 16
"""Which part of a deviation rounding may take, and how many deviations are usual for a bias."""

_MOST = 0.5
"""Which share of the columns behind an input has to be far."""


@keep("keep-offsets", Reason.OFFSET, Stage.GIVEN, 16)
def keep_offsets(m: Match, ask: Ask) -> Kept:
    """Mark what adds a large number to small ones, up to the output."""
    if ask.context.only_low:
        return
    for node in m.nodes("Gemm", "MatMul"):  # columns that their own scales are folded into
        source, moved = m.through(m.read(node)[0])
        if source in m.flat.main.inputs:
            # An outlier channel is none: most columns have their means in their bias then.
            sums = [n for n in m.readers(m.made(node)) if m.op(n) in ADDED]
            told = {n: _far(m, n, _MOST) for n in (node, *sums)}
            yield from (Keep(why, [*moved, node, n]) for n, why in told.items() if why)
    for output in m.flat.main.outputs:
        way_to, todo = {output: list[int]()}, Worklist(output, most=FARTHEST)
        for value in todo:
            node, source = m.maker(value), m.graph.source[value]
            own = [source] if m.has(node, Trait.SUBGRAPHS) else m.graph.vertices_of(node)
            way = [*way_to[value], *own]
            detail = _far(m, node)
            if detail:
                mixed = [n for v in way for n in _shares(m, m.graph.nodes[v])]
                yield Keep(detail, mixed, way)
            way_to |= dict.fromkeys(todo.add(_before(m, value)), way)


def _shares(m: Match, node: int) -> list[int]:
    """Return what gives shares that a node multiplies: rounded ones do not add up to one."""
    multiplies = m.is_a(node, "Mul") or m.op(node) in PRODUCTS
    makers = [m.maker(m.source(v)) for v in m.data(node)] if multiplies else []
    return [n for n in makers if m.is_a(n, "Softmax")]


def _far(m: Match, node: int, share: float = 0.0) -> str:
    """Tell how a node adds numbers far larger than what varies, "" if not more than a share are."""
    least = max(_TAKEN / m.low.epsilon, _FEWEST)
    for offset, spread in _added(m, node):
        fits = np.abs(offset) < m.low.overflow  # what does not is kept or scaled elsewhere
        if ((np.abs(offset) > least * spread) & fits).mean() > share:
            return f"{m.name(node)} adds {np.abs(offset).max():.4g} to numbers far smaller"
    return ""


def _before(m: Match, value: int) -> list[int]:
    """Return of what a value is made by cheap arithmetic, or which results of bodies it is."""
    return m.data(m.maker(value)) if m.op(m.maker(value)) in _PASSED else m.handed(value)


def _added(m: Match, node: int) -> Iterator[tuple[Array, Array]]:
    """Yield the numbers that a node adds to a layer's results, and the deviation of these."""
    if _shares(m, node):  # of numbers that a table has
        held = [n for v in m.data(node) if (n := m.array(v)) is not None and n.size > 1]
        yield from ((np.ravel(n.mean()), np.ravel(n.std() or np.inf)) for n in held)
    if m.op(node) in PRODUCTS:
        bias = [n for v in m.read(node)[2:3] if v != ABSENT and (n := m.array(v)) is not None]
        yield from ((b, s) for b in bias if (s := _layer(m, node, len(np.ravel(b)))) is not None)
    elif m.op(node) in ADDED:
        offsets = [n for v in m.read(node) if (n := m.array(v)) is not None]
        data = [v for v in m.data(node) if not m.is_constant(v)]
        for offset in offsets if len(data) == 1 else ():
            spread = _spread(m, data[0], np.size(offset))
            if spread is not None:
                yield np.ravel(offset), spread


def _spread(m: Match, value: int, width: int) -> Array | None:
    """Return the deviation of scaled results of a layer, by channel or of all of them."""
    scales, node = np.ones(1), ABSENT
    for _ in range(FARTHEST):
        node = m.maker(value)
        scaled = m.factor(node)
        if scaled is not None:
            numbers = m.array(scaled[1])
            if numbers is None or numbers.size not in (1, width):
                return None
            own = np.abs(np.ravel(numbers))
            scales, value = (scales / own if m.is_a(node, "Div") else scales * own), scaled[0]
        elif m.op(node) in MOVED and m.data(node):
            value = m.data(node)[0]
        else:
            break
    layer = _layer(m, node, width)
    return None if layer is None else scales * layer


def _layer(m: Match, node: int, width: int) -> Array | None:
    """Return the deviation of a layer's results, by channel or of all, for numbers around 1."""
    factors = m.factors(node)
    held = m.array(factors[1]) if len(factors) > 1 else None
    if held is None:
        return None
    squares = np.square(held)
    by_row = squares.sum(axis=tuple(range(1, squares.ndim)))
    by_column = squares.reshape(-1, squares.shape[-1]).sum(axis=0)
    for sums in (
        (by_row, by_column) if m.is_a(node, "Conv", "ConvTranspose") else (by_column, by_row)
    ):
        if width in (1, sums.size):
            return np.sqrt(sums)
    return None
