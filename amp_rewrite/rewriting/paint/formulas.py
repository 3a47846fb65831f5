"""What arithmetic made a value: the nodes between it and what layers, functions or inputs give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from amp_rewrite.graph.constants import is_constant, moved_elements
from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.elements import FLOAT32_TYPES, tensor
from amp_rewrite.graph.flat import ABSENT, Operator
from amp_rewrite.graph.traits import Trait, has, having, is_one, operator, row_of
from amp_rewrite.rewriting.paint.context import PaintContext

_ARITHMETIC = having(
    Trait.MOVES, Trait.CASTS, Trait.CHANGES_SIGN, Trait.ADDS, Trait.SUMS_UP, Trait.AVERAGES
) | {
    "Clip",
    "Div",
    "Mean",
    "Mul",
    "Pow",
    "Reciprocal",
    "Sqrt",
    "Sub",
}  # operators: those that are passed besides products.

# operators: products of com.microsoft that add up, as MatMul and Gemm do.
_CONTRIBUTED_PRODUCTS = ("FusedMatMul", "FusedGemm", "TransposeMatMul")

# operators: transforms, which are products with a matrix that they hold.
TRANSFORMS = ("DFT", "STFT")

FARTHEST = 64
"""Nodes that are followed back at most: behind more there is a network, not a formula."""


class Behind(NamedTuple):
    """What computes a value.

    Attributes:
        nodes: The nodes, products included.
        values: What these read and make, and the value itself.
    """

    nodes: list[int]
    values: set[int]


class Formulas:
    """Questions about the arithmetic of a model; some of it may be low already."""

    def __init__(self, context: PaintContext) -> None:
        """Follow nothing yet."""
        self.graph: TypeGraph = context.type_graph
        self.flat = context.type_graph.flat
        self._types = {*FLOAT32_TYPES, tensor(context.low.number)}
        self._bases: dict[int, int] = {}
        self._data = [row_of(called).data for called in self.flat.operators]

    def data(self, node: int) -> list[int]:
        """Return the floating-point data that a node reads."""
        data, inputs = self._data[self.flat.operator[node]], self.flat.inputs_of(node)
        if data is not None:
            inputs = [v for k, v in enumerate(inputs) if k in data]
        kinds, types = self._types, self.graph.types
        return [v for v in inputs if v != ABSENT and types[v] in kinds]

    def is_constant(self, value: int) -> bool:
        """Tell whether a value is a constant, moved or cast or neither."""
        return is_constant(self.flat, value)

    def factor(self, node: int) -> tuple[int, int] | None:
        """Return what a Mul or Div by a constant scales, and the constant; None for others.

        The product of two constants is none: it may be a square.
        """
        called, read = self.flat.called(node), self.flat.inputs_of(node)
        if is_one(called, "Mul", "Div") and len(read) == 2:
            if all(self.is_constant(v) for v in read):
                return None
            if self.is_constant(read[1]):
                return read[0], read[1]
            if called.op_type == "Mul" and self.is_constant(read[0]):
                return read[1], read[0]
        return None

    def is_negative(self, value: int) -> bool:
        """Tell whether a value is taken away where it is added: it is negated or scaled so."""
        while (node := self.flat.producer[value]) != ABSENT:
            called, scaled = self.flat.called(node), self.factor(node)
            if is_one(called, "Neg"):
                return True
            if scaled is not None:
                numbers = moved_elements(self.flat, scaled[1])
                return numbers is not None and bool(numbers.size) and numbers.max() < 0
            read = self.data(node)
            if not has(called, Trait.MOVES, Trait.CASTS) or len(read) != 1:
                return False
            value = read[0]
        return False

    def base(self, value: int) -> int:
        """Return what a value is, but for where its elements are and constant factors."""
        passed: list[int] = []
        while value not in self._bases:
            passed.append(value)
            node = self.flat.producer[value]
            if node == ABSENT:
                break
            called, read, scaled = self.flat.called(node), self.data(node), self.factor(node)
            if scaled is not None:
                value = scaled[0]
            elif len(read) == 1 and has(called, Trait.MOVES, Trait.CASTS, Trait.CHANGES_SIGN):
                value = read[0]
            else:
                break
        base = self._bases.get(value, value)
        self._bases.update(dict.fromkeys(passed, base))
        return base

    def between(self, value: int) -> list[int]:
        """Return the nodes between a value and its base."""
        nodes, end = list[int](), self.base(value)
        while value != end:
            node = self.flat.producer[value]
            nodes.append(node)
            scaled = self.factor(node)
            value = self.data(node)[0] if scaled is None else scaled[0]
        return nodes

    def factors(self, node: int) -> list[int]:
        """Return the operands of a product of matrices or a convolution; none of other nodes."""
        return self.data(node)[:2] if is_product(self.flat.called(node)) else []

    def behind(self, value: int, stops: Iterable[int] = ()) -> Behind:
        """Return what computes a value, back to what no arithmetic gives.

        A product with weights is a layer: it is the last node on its way, unless the weights are
        all equal, so that it is a sum. So is a transform. Values in `stops` end the way as well.
        """
        ends, behind = set(stops), Behind([], {value})
        stack = [value]
        while stack and len(behind.nodes) < FARTHEST:
            current = stack.pop()
            node = self.flat.producer[current]
            if node == ABSENT or current in ends or self.is_constant(current):
                continue
            called, factors = self.flat.called(node), self.factors(node)
            transforms = is_one(called, *TRANSFORMS)
            if not (factors or transforms or operator(called) in _ARITHMETIC):
                continue
            behind.nodes.append(node)
            if transforms or any(self.is_constant(v) and not self._is_even(v) for v in factors):
                continue
            read = [v for v in self.data(node) if v not in behind.values]
            behind.values.update(read)
            stack += read
        return behind

    def _is_even(self, value: int) -> bool:
        """Tell whether a constant repeats one number, so that a product with it is a sum."""
        numbers = moved_elements(self.flat, value)
        return (
            numbers is not None and bool(numbers.size) and bool((numbers == numbers.flat[0]).all())
        )

    def walk_back(self, value: int, passes: frozenset[str]) -> Iterator[tuple[int, list[int]]]:
        """Yield the nodes that make a value through operators that are passed.

        With each comes the way: the nodes behind it. What scales by a constant is passed as well.
        """
        stack, seen = [(value, list[int]())], {value}
        while stack and len(seen) < FARTHEST:
            current, way = stack.pop()
            node = self.flat.producer[current]
            if node == ABSENT or self.is_constant(current):
                continue
            yield node, way
            scaled = self.factor(node)
            if scaled is not None:
                read = [scaled[0]]
            elif operator(self.flat.called(node)) in passes:
                read = self.data(node)
            else:
                continue
            new = [v for v in read if v not in seen]
            seen.update(new)
            stack += [(v, [*way, node]) for v in new]


def is_product(called: Operator) -> bool:
    """Tell whether an operator adds up products of its first two inputs, as layers do."""
    if called.domain == "com.microsoft":
        return called.op_type in _CONTRIBUTED_PRODUCTS
    return has(called, Trait.CONTRACTS)
