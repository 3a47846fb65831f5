"""A node as a transfer rule sees it: the intervals of its inputs, its attributes and shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from amp_rewrite.graph.flat import ABSENT, Array, Attribute, FlatGraph
from amp_rewrite.graph.traits import operator
from amp_rewrite.values.intervals.element_types import ElementType
from amp_rewrite.values.intervals.interval import ANY, Interval
from amp_rewrite.values.intervals.row_sums import Layout, RowSums
from amp_rewrite.values.sum_lengths import terms


class Known(Protocol):
    """Questions of rules about values."""

    @property
    def flat(self) -> FlatGraph:
        """The model."""
        ...

    def __getitem__(self, value: int) -> Interval:
        """Return the interval of a value."""
        ...

    def array(self, value: int) -> Array | None:
        """Return the elements of a constant that is not too long, in its shape, or None."""
        ...

    def row_sums(self, value: int, layout: Layout) -> RowSums | None:
        """Return what the rows of a constant sum up to, or None for what is long or no constant."""
        ...

    def shape(self, value: int) -> Sequence[int | None] | None:
        """Return the shape of a value as far as it is known."""
        ...

    def same(self, one: int, other: int) -> bool:
        """Tell whether two values are one, which Identity may hand on."""
        ...

    def type_of(self, value: int) -> ElementType:
        """Return what the element type of a value says."""
        ...


class Operation(NamedTuple):
    """A node, as transfer rules see it.

    A rule sees what nodes of one case have in common (`Intervals.case`), for it is asked only of
    the first one; what else a rule may ask must become part of a kind (values/sweep.py).

    Attributes:
        known: What is known of values.
        node: The node.
        inputs: The values that it reads, ABSENT where an input is left out.
    """

    known: Known
    node: int
    inputs: Sequence[int]

    def has(self, index: int) -> bool:
        """Tell whether an input is there."""
        return index < len(self.inputs) and self.inputs[index] != ABSENT

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

    @property
    def opset(self) -> int:
        """The opset in force."""
        return self.known.flat.opset_of(self.node)

    @property
    def output(self) -> int:
        """The first value that the node makes."""
        return self.known.flat.outputs_of(self.node)[0]

    @property
    def n_outputs(self) -> int:
        """How many values it makes."""
        return len(self.known.flat.outputs_of(self.node))

    @property
    def attributes(self) -> Mapping[str, Attribute]:
        """The node's attributes."""
        return self.known.flat.attributes(self.node)

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute that is there and no reference, or the default.

        Nobody checks attributes of foreign operators: one of another kind than the default counts
        as left out.
        """
        attribute = self.attributes.get(name)
        if attribute is None or attribute.value is None:
            return default
        kinds = _KINDS.get(type(default))
        return attribute.value if kinds is None or isinstance(attribute.value, kinds) else default

    @property
    def terms(self) -> int | None:
        """How many terms an element of the result adds up, or None if shapes do not tell."""
        return terms(operator(self.known.flat.called(self.node)), self)

    @property
    def share(self) -> float:
        """The largest relative error of one operation, from the type of the result."""
        return self.known.type_of(self.output).share


_KINDS: Mapping[type, tuple[type, ...]] = {int: (int,), float: (int, float), str: (str, bytes)}
"""Type of a default -> those that an attribute may have in its place."""


Rule = Callable[[Operation], Interval | list[Interval]]
"""A transfer rule: the interval of the first output, or those of all outputs."""


def within(bounds: Interval) -> Rule:
    """Return the rule of an operator whose result is bounded by what it is."""
    return lambda op: bounds
