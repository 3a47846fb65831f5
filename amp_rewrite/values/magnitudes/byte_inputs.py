"""Which inputs hold images of bytes, by the constants with which a model normalises them.

x / 255, (x - 123.675) / 58.395 or x^2 / 65025 say that x goes up to 255, and estimates may start
from that. Nothing is proved: bounds do not know of it.

Evidence: behind x / 58.5 a 3 x 3 convolution with weights of 900 reaches 70,000 on images of three
channels. It stays float32 with it, and is float16 without a word without.
"""

from __future__ import annotations

import numpy as np

from amp_rewrite.graph.constants import is_constant, moved_elements
from amp_rewrite.graph.flat import Array, FlatGraph
from amp_rewrite.graph.traits import Trait, has

_TOPS = (255.0, 256.0, 127.5, 128.0, 65025.0, 65536.0)
_MEANS = (100.0, 130.0)
_DEVIATIONS = (55.0, 75.0)
"""The divisors of bytes, and where the means and the deviations of images lie."""

_STEPS, _MOST = 6, 16


def holds_bytes(flat: FlatGraph, value: int) -> bool:
    """Tell whether constants behind an input say that it holds bytes: the first arithmetic does."""
    waiting = [value]
    for _ in range(_STEPS):
        if not waiting:
            return False
        nodes = [n for v in waiting for n in dict.fromkeys(flat.readers(v))]
        waiting = []
        for node in nodes:
            called = flat.called(node)
            if called[:2] in _ARITHMETIC and _normalises_bytes(flat, node):
                return True
            squares = called[:2] == ("", "Mul") and len({*flat.inputs_of(node)}) == 1
            if squares or called[:2] == ("", "Pow") or has(called, Trait.MOVES, Trait.CASTS):
                waiting += flat.outputs_of(node)
    return False


# those that normalise with a constant.
_ARITHMETIC = frozenset({("", "Sub"), ("", "Add"), ("", "Mul"), ("", "Div")})


def _normalises_bytes(flat: FlatGraph, node: int) -> bool:
    first, second = flat.inputs_of(node)[:2]
    numbers = moved_elements(flat, second if is_constant(flat, second) else first)
    if numbers is None or not 0 < numbers.size <= _MOST or not numbers.all():
        return False
    held, op = numbers.astype(np.float64).reshape(-1), flat.called(node).op_type
    if op in ("Sub", "Add"):  # operators: what takes a mean away
        return _between(held if op == "Sub" else -held, _MEANS)
    divisors = held if op == "Div" else 1 / held
    is_top = bool(np.isclose(divisors[:, None], _TOPS, rtol=1e-4).any(1).all())
    return is_top or _between(divisors, _DEVIATIONS)


def _between(size: Array, ends: tuple[float, float]) -> bool:
    return bool((size >= ends[0]).all() and (size <= ends[1]).all())
