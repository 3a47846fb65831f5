"""Scores to which large places are added stay float32, with the Softmax that follows.

ALiBi adds slope times place to scores: -511 beside a score of 1 leaves steps of 0.5 in float16
(O. Press et al., "Train Short, Test Long", 2022, https://arxiv.org/abs/2108.12409). Rounding must
not move the largest number that is added by more than the tolerance of the type. Fills of masks
(keep_masks.py) and tables that are looked up are another matter.

Evidence: attention with ALiBi as a constant of 8 heads and 1,024 places: error 0.97 % in float16
and 8 % in bfloat16 without the pass, 0.16 and 1.2 % with it.
"""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from amp_rewrite.graph.flat import ABSENT, Array
from amp_rewrite.graph.traits import TABLE, Trait, having
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Stage, keep
from amp_rewrite.rewriting.paint.masks import softmaxes
from amp_rewrite.rewriting.paint.match import ADDED, FARTHEST, MOVED
from amp_rewrite.rewriting.paint.painting import Reason

# operators: what may stand between a sum and the Softmax.
_PASSED = MOVED | ADDED | {"Clip", "Max", "Min"}

# operators: those that compute places of constants.
_ARITHMETIC = (
    MOVED | ADDED | having(Trait.ENUMERATES) | {"Abs", "Div", "Exp", "Mul", "Neg", "Pow"}
) - {"Where"}

_FEW = 8
"""How many values a mask has at most."""

_SAMPLE = 1 << 16
"""How many elements of a long constant are looked at."""

_MASKS = {name: row.masks for name, row in TABLE.items() if row.masks}
"""Operator with a Softmax inside -> the inputs that it adds to scores."""


@keep("keep-biases", Reason.LARGE_BIAS, Stage.KEEPING, 75)
def keep_biases(m: Match, ask: Ask) -> Kept:
    """Unpaint sums of scores and large constants, with what lies between them and the Softmax."""
    counted = {v for v, mark in ask.context.excluded.items() if mark.reason is Reason.COUNT}
    biased = {n for n in m.nodes(*ADDED) if any(_is_known(m, counted, v) for v in m.data(n))}
    sums = [
        (node, m.data(node), softmax, way)
        for softmax, scores in (softmaxes(m) if biased else ())
        for node, way in m.ways(scores, _PASSED)
        if node in biased
    ]
    for node in m.nodes(*_MASKS):  # these contain the sum and the Softmax
        read, masks = m.read(node), _MASKS[m.op(node)]
        sums.append((node, [v for k, v in enumerate(read) if k in (0, *masks)], node, []))
    for node, added, softmax, way in reversed(sums):  # the last one is told
        largest = {v: size for v in added if (size := _size(m, counted, v))}
        most = max(largest.values(), default=0.0)
        if most * m.low.epsilon / 2 > m.low.rtol and len(largest) < len(added):
            moved = f"which {m.low.name} moves by up to {most * m.low.epsilon / 2:.2g}"
            biases = m.behind(*largest, enters=lambda n: m.op(n) in MOVED).nodes
            biases += [n for v in largest for n in m.through(v, MOVED, first=True)[1]]
            detail = f"{m.name(node)} adds numbers up to {most:.4g}, {moved}"
            yield Keep(detail, [*_parts(m, softmax), *way, node, *biases])


def _parts(m: Match, softmax: int) -> list[int]:
    """Return a Softmax, or the Exp of one that is written out with what takes the largest away."""
    if not m.is_a(softmax, "Exp"):
        return [softmax]
    difference = m.maker(m.read(softmax)[0])
    return [softmax, difference, m.maker(m.read(difference)[1])]


def _is_known(m: Match, counted: Container[int], value: int) -> bool:
    """Tell whether a value may be a constant, or places: `counted` are vertices that make these."""
    is_constant = m.is_fixed(value) or m.is_constant(value)
    return is_constant or (value != ABSENT and m.graph.source[value] in counted)


def _size(m: Match, counted: Container[int], value: int) -> float:
    """Return the largest magnitude of a constant, or of places; 0 for other values."""
    if not _is_known(m, counted, value):
        return 0.0
    if m.graph.source[value] in counted:
        return m.facts.intervals[value].magnitude
    tensor = m.stored(value)
    if tensor is not None:
        return _places(tensor.numpy().reshape(-1))
    # What selects or compares makes a mask.
    nodes = m.behind(value, enters=lambda n: True, most=FARTHEST).nodes if m.is_fixed(value) else ()
    makes_places = bool(nodes) and all(m.op(n) in _ARITHMETIC for n in nodes)
    return m.facts.intervals[value].magnitude if makes_places else 0.0


def _places(elements: Array) -> float:
    """Return the largest magnitude of a constant that takes many values; 0 of a mask."""
    sample = elements[:: elements.size // _SAMPLE | 1].astype(np.float32)
    values = np.unique(sample[np.isfinite(sample)])
    if len(values) > 1 and values[0] / 2 < values[1] <= 0:
        values = values[1:]
    return float(np.abs(values).max()) if len(values) > _FEW else 0.0
