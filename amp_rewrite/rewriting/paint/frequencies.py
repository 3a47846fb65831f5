"""Frequencies that a layer predicts: what a ramp of time multiplies, or a running sum adds up.

A frequency that is off by one part in 512 is off by half a turn after 256 turns, however exact the
ramp is. So in front of a Sin or Cos the functions that make a frequency of what a layer gives stay
float32, and so does that layer, whose result they bend. A layer whose result is the frequency
itself stays what it is: a formula ends at a layer.

Evidence: a frequency that a layer predicts, summed up over time or multiplied by it: 16-bit without
it (twelve cases of tests/conformance/test_constant_places.py).
"""

from __future__ import annotations

from collections.abc import Callable

from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.rewriting.paint.match import ADDED, FARTHEST, SIGNED, Chains, Worklist

# what may stand between a phase and the frequencies that it is made of.
_PASSED = SIGNED | ADDED | {"Mod"}

# operators: arithmetic of a frequency.
_LINEAR = _PASSED | {"Clip", "Div", "Dropout", "Max", "Min", "Mul", "Resize", "Upsample"}

# operators: functions that make a frequency of what a layer gives.
_CURVES = {
    *("Celu", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log"),
    *("Mish", "PRelu", "Pow", "Reciprocal", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign"),
    *("Sqrt", "Swish", "Tanh", "ThresholdedRelu"),
}


def behind_angle(
    m: Chains, angle: int, is_place: Callable[[int], bool], is_small: Callable[[int], bool]
) -> list[int]:
    """Return what makes the frequencies of an angle, and what makes the angle of these.

    Args:
        m: The model.
        angle: The value that a periodic function reads.
        is_place: Tells of a value whether it runs through places and no data have a part in it.
        is_small: Tells of a value whether rounding it does no harm to an angle.
    """
    nodes: list[int] = []
    for node, way in m.ways(angle, _PASSED):
        read = m.data(node)[:2]
        if m.is_a(node, "CumSum"):
            data = read[:1]
        elif m.factors(node) or m.is_a(node, "Mul"):
            data = [v for v in read if not is_place(v)]
            if len(data) != 1 or len(read) < 2:
                continue
        else:
            continue
        if is_small(angle) and is_small(m.made(node)):  # turns end at 1
            continue
        makers = [n for v in data for n in _making(m, v, is_place)]
        if makers:
            nodes += [*way, node, *makers]
    return nodes


def _making(m: Chains, frequency: int, is_place: Callable[[int], bool]) -> list[int]:
    """Return the functions that make a frequency, and the layers whose results they bend."""
    functions, todo = list[int](), Worklist[tuple[int, bool]]((frequency, False))
    for value, bent in todo:
        node = m.maker(value)
        if len(functions) >= FARTHEST:
            break
        if node == ABSENT or m.is_constant(value) or is_place(value):
            continue
        bends = m.op(node) in _CURVES
        if m.factors(node):
            functions += [node] if bent else []
        elif bends or m.op(node) in _LINEAR:
            functions.append(node)
            todo.add((v, bent or bends) for v in m.data(node))
    return functions
