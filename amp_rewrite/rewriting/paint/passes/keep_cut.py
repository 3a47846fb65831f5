"""Operators that would compute with a constant that the target cuts off stay float32.

A runtime that folds constants may cut instead of rounding: 1 / 6 becomes 0.16602 in place of
0.16699, and every HardSwish comes out too small by the same share. Such errors add up over layers.

Evidence: the recogniser of PP-OCRv5 in bfloat16 on OpenVINO: error 3.0 % without the pass, 1.6 %
with it; oww_embedding 1.3 % and 0.8 %.
"""

from __future__ import annotations

import numpy as np

from amp_rewrite.graph.traits import Trait
from amp_rewrite.kernels.rounding_table import FACTOR, RECIPROCAL
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Need, Reason, Stage, keep

# operators: those that multiply with an attribute.
_SLOPES = {"HardSigmoid": 0.2, "LeakyRelu": 0.01}
"""The default factors of operators."""


@keep("keep-cut", Reason.CONSTANT_CUT, Stage.KEEPING, 30, needs=Need.NOTHING)
def keep_cut(m: Match, ask: Ask) -> Kept:
    """Unpaint what computes with a constant that the target cuts off."""
    for op_type, what in ask.context.cut.items():
        for node in m.nodes(op_type):
            lost = _lost(m, node, what)
            if lost:
                yield Keep(lost, [node])


def _lost(m: Match, node: int, what: str) -> str:
    """Return what a node would lose, "" if it loses nothing."""
    if what == FACTOR:
        return "the target cuts weights times a constant off" if _scales_weights(m, node) else ""
    if what != RECIPROCAL:
        attribute = m.flat.attributes(node).get(what)
        factor = _SLOPES[m.op(node)] if attribute is None else float(attribute.value)
        factors, named = np.array(factor, np.float32), f"{what} {factor:.5g}"
    else:
        divisor = m.tensor(m.read(node)[1])
        if divisor is None or _is_part(m, node):
            return ""
        numbers = divisor.numpy().astype(np.float32)
        with np.errstate(divide="ignore"):
            factors = np.float32(1) / numbers
        named = f"1 / {numbers.ravel()[0]:.5g}" if numbers.size == 1 else "1 / a constant"
    is_exact = np.array_equal(factors.astype(m.low.numpy).astype(np.float32), factors)
    return "" if is_exact else f"the target cuts {named} off"


def _scales_weights(m: Match, node: int) -> bool:
    """Tell whether a Mul multiplies a product with weights by what is no power of two."""
    read = m.read(node)
    factors = [tensor for v in read if (tensor := m.tensor(v)) is not None]
    products = [m.maker(v) for v in read if m.has(m.maker(v), Trait.CONTRACTS)]
    if len(factors) != 1 or not products:
        return False
    weights = m.read(products[0])[1:2]
    parts, _ = np.frexp(np.abs(factors[0].numpy().astype(np.float32)))
    return any(map(m.is_constant, weights)) and not np.isin(parts, (0, 0.5)).all()


def _is_part(m: Match, node: int) -> bool:
    """Tell whether a quotient is computed as a part of something: GELU, or scores' factor."""
    maker = m.maker(m.read(node)[0])
    is_score = m.has(maker, Trait.CONTRACTS) and not any(map(m.is_constant, m.read(maker)))
    return is_score or any(m.is_a(reader, "Erf") for reader in m.readers(m.made(node)))
