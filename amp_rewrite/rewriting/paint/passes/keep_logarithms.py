"""What a logarithm of small numbers reads stays float32 with it.

A logarithm turns relative errors into absolute ones, however small its argument is. The low type
spoils the argument in two ways. Small numbers lose their digits and vanish: in
log(max(mel, 1e-10)) of quiet audio, in log(softmax(x)). And differences cancel: in 1 - p a
probability of 0.9999 leaves nothing, where log(p / (1 - p)) asks for 1e-4. So from such a logarithm
back all is float32: to where an absolute error is what counts, the argument of an exponential
(Softmax, Sigmoid) or another function; and to where numbers are as large as the type can keep, as
the amplitudes are whose squares are not. On the way lie products of matrices (mel filters).

A spectrum whose logarithm is taken has any scale, for that only shifts the result: sound comes as
-1..1 or as the integers of 16 bits, and the transform of these leaves the range of float16. It
stays float32 too unless the range of the input is known.

Evidence: oww_melspec in float16: error 0.04 % of the output's peak without the pass, 0 with it;
log(p) of small p up to 0.2 (tests/conformance/test_logarithms.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

import numpy as np

from amp_rewrite.dtypes import may_leave_range
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.flat import ABSENT, Operator
from amp_rewrite.graph.traits import Trait, has, having, is_one, operator
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.formulas import Formulas
from amp_rewrite.rewriting.paint.guards import guards_of
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason
from amp_rewrite.values.sum_lengths import count_terms

_LOUDEST = 32767.0
"""The largest sample of sound of 16 bits."""

# operators: functions whose results are never zero, so that nobody guards a logarithm of them.
_POSITIVE = ("Exp", "Sigmoid", "Softmax", "Softplus")

_ARITHMETIC = (
    having(Trait.MOVES, Trait.CASTS, Trait.CHANGES_SIGN, Trait.ADDS, Trait.SUMS_UP, Trait.AVERAGES)
    | having(Trait.CONTRACTS)
    | {"Abs", "Clip", "Div", "Max", "Mean", "Min", "Mul", "Pow", "Reciprocal", "Relu", "Sqrt"}
    | {"Sub"}
)  # operators: those behind which a relative error of an operand is one of the result.


class KeepLogarithms(PaintPass):
    """Mark logarithms that the low type would spoil, and what computes their arguments."""

    name = "keep-logarithms"
    places = (
        Place(
            Stage.KEEPING,
            90,
            "logarithms of small numbers, and what computes these ([below](#logarithms))",
        ),
        Place(Stage.JUDGING, 70),
    )

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting with such vertices marked; nodes that the user allows are not."""
        flat = context.type_graph.flat
        logarithms = flat.nodes_of("Log")
        if context.lists.is_unsafe or not logarithms:
            return painting
        search, marks = _Search(context), dict[int, Mark]()
        for node in logarithms:
            marks = search.marks_of(node) | marks
        marks = search.transforms(logarithms) | marks
        kept = {v: mark for v, mark in marks.items() if painting.is_allow(v)}
        return painting.with_marks(context.unless_allowed(kept))


class _Search(Formulas):
    """One search in one model."""

    def __init__(self, context: PaintContext) -> None:
        super().__init__(context)
        self._context, self._low = context, context.low

    @cached_property
    def _guards(self) -> Mapping[int, float]:
        return guards_of(self.graph, self._context.values.intervals)

    def marks_of(self, node: int) -> dict[int, Mark]:
        """Return the marks that a logarithm makes; none if the low type keeps its argument."""
        argument = self.flat.inputs_of(node)[0]
        if not self.graph.is_float32(argument):
            return {}
        guard, concerned = self._guards.get(argument, 0.0), list[int]()
        detail = self._vanishing(argument, guard)
        if detail is not None:
            concerned += self._behind(argument, guard, lambda _, size: self._is_faint(size))
        difference = self._difference(argument, guard)
        if difference is not None:
            concerned += difference
            detail = detail or f"a difference of numbers that {self._low.name} holds too roughly"
        if detail is None:
            return {}
        mark = Mark(
            Color.NONE,
            Reason.DEMAND,
            None,
            f"logarithm {self.flat.node_names[node]}: {detail}",
        )
        origin = next(iter(self.graph.vertices_of(node)))
        others = [v for n in concerned for v in self.graph.vertices_of(n) if v != origin]
        return {**dict.fromkeys(others, mark._replace(because=origin)), origin: mark}

    def transforms(self, logarithms: Iterable[int]) -> dict[int, Mark]:
        """Return the marks of transforms of the model's inputs whose squares logarithms read."""
        if not may_leave_range(self._low):
            return {}
        arguments = (self.flat.inputs_of(node)[0] for node in logarithms)
        stack = [value for value in arguments if self._guards.get(value)]
        marks, seen = dict[int, Mark](), set(stack)
        while stack:
            node = self.flat.producer[stack.pop()]
            if node == ABSENT or operator(self.flat.called(node)) not in _ARITHMETIC:
                continue
            if self._is_square(node):
                marks |= self._loud(self.flat.inputs_of(node)[0])
            new = [v for v in self.data(node) if v not in seen]
            seen.update(new)
            stack += new
        return marks

    def _is_square(self, node: int) -> bool:
        called, inputs = self.flat.called(node), self.flat.inputs_of(node)
        if is_one(called, "Mul"):
            return inputs[0] == inputs[1]
        exponent = self._context.values.intervals[inputs[1]] if is_one(called, "Pow") else None
        return exponent is not None and exponent.is_point and exponent.low == 2

    def _loud(self, value: int) -> dict[int, Mark]:
        """Return the marks of what computes a value if it is the transform of a loud signal."""
        flat, passed = self.flat, list[int]()
        node = flat.producer[value]
        while node != ABSENT and has(flat.called(node), Trait.MOVES):
            passed.append(node)
            node = flat.producer[flat.inputs_of(node)[0]]
        if node == ABSENT or not has(flat.called(node), Trait.CONTRACTS):
            return {}
        largest = self._largest(node)
        if largest < self._low.overflow:
            return {}
        name = flat.value_names[flat.outputs_of(node)[0]]
        detail = f"{name} may reach {largest:.2g} of sound of 16 bits, {self._low.name} ends at "
        mark = Mark(Color.NONE, Reason.LIKELY_OVERFLOW, None, f"{detail}{self._low.max:.6g}")
        return {v: mark for n in (node, *passed) for v in self.graph.vertices_of(n)}

    def _largest(self, node: int) -> float:
        """Return what the product of a signal and a constant reaches where the signal is loud."""
        constants = [v for v in self.data(node) if constant_tensor(self.graph, v) is not None]
        signals = [v for v in self.data(node) if v not in constants]
        sample = self._context.values.estimates.sample(constants[0]) if constants else None
        terms = count_terms(self.flat, node)
        if len(signals) != 1 or sample is None or terms is None:
            return 0.0
        return self._loudness(signals[0]) * terms * float(np.abs(sample).mean())

    def _loudness(self, value: int) -> float:
        """Return the largest number of a moved and scaled input of unknown range, or 0."""
        flat, factor = self.flat, 1.0
        while (node := flat.producer[value]) != ABSENT:
            called, inputs = flat.called(node), flat.inputs_of(node)
            if is_one(called, "Mul", "Div"):
                constants = [v for v in inputs if constant_tensor(self.graph, v) is not None]
                if len(constants) != 1 or (called.op_type == "Div" and constants[0] == inputs[0]):
                    return 0.0
                size = self._context.values.magnitude(constants[0])
                factor = factor * size if called.op_type == "Mul" else factor / (size or math.inf)
                value = inputs[0] if inputs[0] != constants[0] else inputs[1]
            elif has(called, Trait.MOVES, Trait.CASTS):
                value = inputs[0]
            else:
                return 0.0
        bounded = self._context.values.intervals[value].is_bounded
        return factor * _LOUDEST if flat.is_input(value) and not bounded else 0.0

    def _vanishing(self, argument: int, guard: float) -> str | None:
        """Return how small numbers vanish from an argument, or None."""
        low = self._low
        if guard:
            kept = f"{low.name} keeps too little of them"
            return f"numbers down to {guard:.3g} count, {kept}" if self._is_faint(guard) else None
        if may_leave_range(low) and self._is_positive(argument):
            return f"what is never zero may be so in {low.name}"
        return None

    def _difference(self, argument: int, guard: float) -> list[int] | None:
        """Return what computes an argument if it is made of a difference that cancels, or None."""
        behind = self._behind(argument, guard, lambda called, _: not has(called, Trait.CONTRACTS))
        cancels = [n for n in behind if self._cancels(n, guard)]
        return behind if cancels else None

    def _is_faint(self, guard: float) -> bool:
        """Tell whether rounding takes more of a number than the tolerance of the low type."""
        return guard * self._low.rtol < self._low.smallest_subnormal / 2

    def _is_positive(self, value: int) -> bool:
        """Tell whether a value is the result of a function that is never zero, perhaps moved."""
        node = self.flat.producer[value]
        while node != ABSENT and has(self.flat.called(node), Trait.MOVES):
            node = self.flat.producer[self.flat.inputs_of(node)[0]]
        return node != ABSENT and is_one(self.flat.called(node), *_POSITIVE)

    def _cancels(self, node: int, guard: float) -> bool:
        """Tell whether of a difference of bounded numbers not even a guard's size is exact."""
        called, inputs = self.flat.called(node), self.flat.inputs_of(node)
        if not is_one(called, "Sub", "Add"):
            return False
        one, other = (self._context.values.intervals[value] for value in inputs)
        opposed = one.low >= 0 >= other.high or other.low >= 0 >= one.high
        if called.op_type == "Add" and not opposed:
            return False
        sizes = [self._context.values.magnitude(value) for value in inputs]
        smallest = min(sizes)
        bounded = 0 < smallest <= max(sizes) < math.inf
        return bounded and smallest * self._low.epsilon / 2 >= guard

    def _behind(
        self, argument: int, guard: float, concerns: Callable[[Operator, float], bool]
    ) -> list[int]:
        """Return the nodes that compute an argument, back to where absolute errors count.

        Args:
            argument: The value.
            guard: The size of its numbers that count.
            concerns: Tells of an operator, and the size of results that count, whether to pass it.
        """
        nodes, stack, seen = list[int](), [(argument, guard)], {argument}
        while stack:
            value, size = stack.pop()
            node = self.flat.producer[value]
            if node == ABSENT or constant_tensor(self.graph, value) is not None:
                continue
            called = self.flat.called(node)
            if not concerns(called, size):
                continue
            nodes.append(node)
            if operator(called) in _ARITHMETIC:
                size = self._size_before(node, size)
                new = [v for v in self.data(node) if v not in seen]
                seen.update(new)
                stack += [(v, size) for v in new]
        return nodes

    def _size_before(self, node: int, size: float) -> float:
        """Return the size of operands whose squares, or roots, have a size."""
        inputs = self.flat.inputs_of(node)
        called = self.flat.called(node)
        if is_one(called, "Mul") and inputs[0] == inputs[1]:
            return math.sqrt(size)
        if is_one(called, "Sqrt"):
            return size * size
        if is_one(called, "Pow"):
            exponent = self._context.values.intervals[inputs[1]]
            return size ** (1 / exponent.low) if exponent.is_point and exponent.low > 0 else size
        return size
