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
from amp_rewrite.graph.traits import Trait, having, is_one, operator
from amp_rewrite.rewriting.paint.formulas import FARTHEST, Formulas

# operators: what may stand between a phase and the frequencies that it is made of.
_PASSED = having(Trait.MOVES, Trait.CASTS, Trait.CHANGES_SIGN, Trait.ADDS) | {"Mod", "Sub"}

# operators: arithmetic of a frequency.
_LINEAR = _PASSED | {"Clip", "Div", "Dropout", "Max", "Min", "Mul", "Resize", "Upsample"}

# operators: functions that make a frequency of what a layer gives.
_CURVES = {
    *("Celu", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log"),
    *("Mish", "PRelu", "Pow", "Reciprocal", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign"),
    *("Sqrt", "Swish", "Tanh", "ThresholdedRelu"),
}


class Frequencies(Formulas):
    """A search for predicted frequencies in one model."""

    def behind_angle(
        self, angle: int, is_place: Callable[[int], bool], is_small: Callable[[int], bool]
    ) -> list[int]:
        """Return what makes the frequencies of an angle, and what makes the angle of these.

        Args:
            angle: The value that a periodic function reads.
            is_place: Tells of a value whether it runs through places and no data have a part in it.
            is_small: Tells of a value whether rounding it does no harm to an angle.
        """
        nodes: list[int] = []
        for node, way in self.walk_back(angle, _PASSED):
            called, read = self.flat.called(node), self.data(node)
            if is_one(called, "CumSum"):
                data = read[:1]
            elif self.factors(node) or is_one(called, "Mul"):
                data = [v for v in read[:2] if not is_place(v)]
                if len(data) != 1 or len(read) < 2:
                    continue
            else:
                continue
            if is_small(angle) and is_small(self.flat.outputs_of(node)[0]):  # turns end at 1
                continue
            makers = [n for v in data for n in self._making(v, is_place)]
            if makers:
                nodes += [*way, node, *makers]
        return nodes

    def _making(self, frequency: int, is_place: Callable[[int], bool]) -> list[int]:
        """Return the functions that make a frequency, and the layers whose results they bend."""
        functions, seen = list[int](), {(frequency, False)}
        stack = [*seen]
        while stack and len(functions) < FARTHEST:
            value, bent = stack.pop()
            node = self.flat.producer[value]
            if node == ABSENT or self.is_constant(value) or is_place(value):
                continue
            called = self.flat.called(node)
            bends = operator(called) in _CURVES
            if self.factors(node):
                functions += [node] if bent else []
                continue
            if not (bends or operator(called) in _LINEAR):
                continue
            functions.append(node)
            new = {(v, bent or bends) for v in self.data(node)} - seen
            seen |= new
            stack += new
        return functions
