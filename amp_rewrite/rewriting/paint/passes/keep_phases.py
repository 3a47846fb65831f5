"""The phase of a spectrum stays float32, and so does the spectrum.

atan2(im, re) is exported as Div, Atan and Where. A bin of silence holds 1e-6: in float16 the
quotient is NaN, or the phase jumps by pi. The quotient, what computes it, and what compares its
operands with zero are float32; so are short sums and functions that make the signal (the nine sines
of a vocoder), for rounding them is louder than silence.

Evidence: the phase of a spectrum in float16: of silence 1,000 of 1,000 elements are not finite
without the pass, of a tone the error is 0.59; 0 and 0 with it.
"""

from __future__ import annotations

from amp_rewrite.graph.traits import Trait, having
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Reason, Stage, keep
from amp_rewrite.rewriting.paint.match import ADDED, FARTHEST, PRODUCTS, SIGNED, TRANSFORMS
from amp_rewrite.values.sum_lengths import count_terms

# operators: what may stand between a quotient and the inverse of a function.
_PASSED = SIGNED | ADDED | {"Clip", "Max", "Min"}

# operators: functions and arithmetic of which signals are made.
_SIGNALS = (
    SIGNED
    | ADDED
    | having(Trait.PERIODIC, Trait.SUMS_UP, Trait.HANDS_ON)
    | {"Clip", "Div", "Mul", "Relu", "Sigmoid", "Tanh"}
)

LONGEST_SOURCE = 16
"""Terms of the longest product that makes a signal; one of more is a layer."""


@keep("keep-phases", Reason.DEMAND, Stage.GIVEN, 20)
def keep_phases(m: Match, _: Ask) -> Kept:
    """Mark quotients of which an angle is made, and what computes them."""
    for angle in m.nodes("Atan", "Asin", "Acos"):
        for quotient, way in m.ways(m.read(angle)[0], _PASSED):
            if _divides(m, quotient):
                spectrum = _spectrum(m, m.read(quotient))
                yield Keep(f"phase of {m.name(angle)}", [angle, *way, quotient, *spectrum])


def _divides(m: Match, node: int) -> bool:
    """Tell whether a node divides by what is no constant: a negative power is a reciprocal."""
    if m.is_a(node, "Div"):
        return not m.is_constant(m.read(node)[1])
    operands = m.read(node) if m.is_a(node, "Mul") else []
    return any(m.is_a(m.maker(m.base(v)), "Reciprocal", "Pow") for v in operands)


def _spectrum(m: Match, operands: list[int]) -> list[int]:
    """Return what computes the operands of a quotient, and what compares these."""
    parts = [m.formula(value) for value in operands]
    nodes = [n for part in parts for n in part.nodes]
    readers = [n for part in parts for v in part.values for n in m.readers(v)]
    comparing = [n for n in readers if m.has(n, Trait.COMPARES, Trait.JUMPS)]
    layers = [n for n in nodes if m.op(n) in TRANSFORMS or any(map(m.is_constant, m.factors(n)))]
    read = [v for n in layers for v in m.factors(n) or m.data(n)[:1]]
    signals = m.behind(*read, enters=lambda n: _makes_signals(m, n), most=FARTHEST)
    return [*nodes, *comparing, *signals.nodes]


def _makes_signals(m: Match, node: int) -> bool | None:
    """Tell whether a node is a function or a short sum of which signals are made."""
    if m.op(node) in PRODUCTS:
        terms = count_terms(m.flat, node)
        return (terms is not None and terms <= LONGEST_SOURCE) or None
    return m.op(node) in _SIGNALS or None
