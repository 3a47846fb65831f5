"""A node as a transfer rule sees it: the intervals of its inputs, its attributes and shapes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

from amp_rewrite.graph.constants import Constants
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, Array
from amp_rewrite.values.intervals import element_types
from amp_rewrite.values.intervals.element_types import ElementType
from amp_rewrite.values.intervals.interval import ANY, Interval
from amp_rewrite.values.intervals.row_sums import Layout, RowSums
from amp_rewrite.values.sum_lengths import Seen
from amp_rewrite.values.sweep import Sweep, behind_identities


class Known(Sweep[Interval]):
    """Questions of rules about values: their intervals, and what the file says of them."""

    def __init__(self, type_graph: TypeGraph) -> None:
        """Look at nothing yet."""
        super().__init__(type_graph)
        self.constants = Constants(self.flat)
        self._row_sums: dict[tuple[int, Layout], RowSums | None] = {}
        self.same_as = behind_identities(self.flat)  # by value: the one that Identity hands on

    @abstractmethod
    def shape(self, value: int) -> Sequence[int | None] | None:
        """Return the shape of a value as far as it is known."""

    def type_of(self, value: int) -> ElementType:
        """Return what the element type of a value says."""
        return element_types.of(self.type_graph.types[value])

    def same(self, one: int, other: int) -> bool:
        """Tell whether two values are one, which Identity may hand on."""
        return self.same_as[one] == self.same_as[other]

    def array(self, value: int) -> Array | None:
        """Return the elements of a constant that is not too long, in its shape, or None."""
        node = self.flat.producer[value]
        if node != ABSENT and self.flat.called(node)[:2] == ("", "Identity"):
            return next((self.array(v) for v in self.flat.inputs_of(node)), None)
        return self.constants.array(value)

    def row_sums(self, value: int, layout: Layout) -> RowSums | None:
        """Return what the rows of a constant sum up to, or None for what is long or no constant."""
        key = value, layout
        if key not in self._row_sums:
            array = self.array(value)
            sums = None if array is None or not array.size else RowSums.of(layout(array))
            self._row_sums[key] = sums
        return self._row_sums[key]


class Operation(Seen):
    """A node, as transfer rules see it.

    A rule sees what nodes of one case have in common (`Intervals.case`), for it is asked only of
    the first one; what else a rule may ask must become part of a kind (values/sweep.py).
    """

    def __init__(self, known: Known, node: int) -> None:
        """Look at a node; `known` is what is known of values."""
        super().__init__(known.flat, node)
        self.known = known

    def of(self, index: int) -> Interval:
        """Return the interval of an input; anything of one that is left out."""
        return self.known[self.inputs[index]] if self.has(index) else ANY

    def of_all(self) -> list[Interval]:
        """Return the intervals of all inputs that are there."""
        return [self.known[value] for value in self.inputs if value != ABSENT]

    @property
    def reads_one_value(self) -> bool:
        """Whether the first two inputs are one value: x + x, x * x."""
        return self.known.same(self.inputs[0], self.inputs[1])

    def array(self, index: int) -> Array | None:
        """Return the elements of an input that is a constant and not too long."""
        return self.known.array(self.inputs[index]) if self.has(index) else None

    def shape(self, index: int) -> Sequence[int | None] | None:
        """Return the shape of an input as far as it is known."""
        return self.known.shape(self.inputs[index]) if self.has(index) else None

    def last(self) -> int | None:
        """Return None: nodes of one case have the shapes in common, and no more."""

    @property
    def opset(self) -> int:
        """The opset in force."""
        return self.flat.opset_of(self.node)

    @property
    def output(self) -> int:
        """The first value that the node makes."""
        return self.flat.outputs_of(self.node)[0]

    @property
    def n_outputs(self) -> int:
        """How many values it makes."""
        return len(self.flat.outputs_of(self.node))

    @property
    def share(self) -> float:
        """The largest relative error of one operation, from the type of the result."""
        return self.known.type_of(self.output).share


Rule = Callable[[Operation], Interval | list[Interval]]
"""A transfer rule: the interval of the first output, or those of all outputs."""


def within(bounds: Interval) -> Rule:
    """Return the rule of an operator whose result is bounded by what it is."""
    return lambda op: bounds
