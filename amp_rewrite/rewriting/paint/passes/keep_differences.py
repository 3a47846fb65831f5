"""Differences of large numbers stay float32 where what remains counts.

Rounding is relative to what is rounded, and a difference may be far smaller. Two forms of it are
common, and no list can name them:

- |x|^2 - 2 x y^T + |y|^2, the squared distances of DGCNN, codebooks and kernels: a product that
  meets, in a sum, the sum of squares of one of its own operands. Of the neighbours of a car at 35 m
  a fifth are right where the product is float16.
- a root, a logarithm or a reciprocal of a difference: the deviation of a Gaussian process,
  sqrt(max(0, c - k K k^T)), or a variance as mean(x^2) - mean(x)^2. What computes either side is
  float32, back to the last layer or function, or to what both sides are made of.

Evidence: the deviation of a Gaussian process in float16: 0 without the pass, 0.108 with it and in
float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np

from amp_rewrite.graph.constants import MOST_READ, moved_elements, moved_from, stored_tensor
from amp_rewrite.graph.flat import ABSENT, Array
from amp_rewrite.graph.traits import Trait, has, having, is_one
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.formulas import Formulas, is_product
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Place, Stage
from amp_rewrite.rewriting.paint.painting import Color, Mark, Painting, Reason

# operators: what may turn a small error of a difference into a large one.
_ROOTS = ("Sqrt", "Log", "Reciprocal", "Pow", "Div")
# operators: what may stand between a root and a difference.
_KEEPS = having(Trait.MOVES, Trait.CASTS, Trait.CHANGES_SIGN) | {"Clip", "Max", "Min", "Relu"}
_SUMS = having(Trait.ADDS) | {"Sub"}
"""Those in which a product meets squares."""
# operators: those that square what they read and add it up, besides products.
_SQUARE = ("ReduceL2", "ReduceSumSquare")
# operators: those that add up squares, besides products.
_SQUARED = (*_SQUARE, "ReduceMean", "ReduceSum")
_STEPS = 12
"""Nodes that are followed at most from a sum of squares to the sum in which it meets a product."""


class KeepDifferences(PaintPass):
    """Mark differences of large numbers, and what computes them."""

    name = "keep-differences"
    places = (
        Place(
            Stage.GIVEN,
            10,
            "differences of large numbers where what remains counts, before the first round "
            "([below](#differences-states-and-phases))",
        ),
        Place(Stage.HARMED, 20),
    )

    def run(self, context: PaintContext, painting: Painting) -> Painting:
        """Return the painting with such vertices marked; nodes that the user allows are not."""
        if context.lists.is_unsafe:
            return painting
        search = _Search(context)
        marks = search.of_roots() | search.of_expansions()
        return painting.with_marks(context.unless_allowed(marks))


class _Search(Formulas):
    """One search in one model."""

    # What a root, a logarithm or a reciprocal reads.

    def of_roots(self) -> dict[int, Mark]:
        """Return the marks of differences behind which a small absolute error counts."""
        marks: dict[int, Mark] = {}
        for root in self.flat.nodes_of(*_ROOTS):
            argument = self._argument(root)
            if argument is None:
                continue
            detail = f"a difference in front of {self.flat.node_names[root]}"
            for node, way in self.walk_back(argument, _KEEPS | _SUMS):
                sides = self._sides(node)
                if sides is not None:
                    behind = self._behind_both(sides)
                    _add(marks, self._marks([root, *way, node, *behind], detail))
                    break
        return marks

    def _argument(self, root: int) -> int | None:
        """Return what a root, logarithm or reciprocal reads; None for another power or quotient."""
        called, read = self.flat.called(root), self.flat.inputs_of(root)
        if called.op_type == "Pow":
            exponent = moved_elements(self.flat, read[1])
            below_one = exponent is not None and exponent.size and exponent.max() < 1
            return read[0] if below_one else None
        if called.op_type == "Div":
            return read[1] if self.is_constant(read[0]) else None
        return read[0]

    def _sides(self, node: int) -> list[int] | None:
        """Return the operands of a difference, None for another node; one may be a constant."""
        called, read = self.flat.called(node), self.data(node)
        if is_one(called, "Sub"):
            return read if len(read) == 2 else None
        if has(called, Trait.ADDS) and len(read) > 1:
            return read if any(self.is_negative(v) for v in read) else None
        return None

    def _behind_both(self, sides: list[int]) -> list[int]:
        """Return what computes the sides of a difference, but not what both are made of."""
        reached = [self.behind(value).values for value in sides]
        common = {v for k, a in enumerate(reached) for b in reached[:k] for v in a & b}
        return [n for value in sides for n in self.behind(value, common).nodes]

    # What meets the squares of its own operand.

    def of_expansions(self) -> dict[int, Mark]:
        """Return the marks of products that meet the sum of squares of one of their operands."""
        operators = self.flat.operators
        products = {k for k, called in enumerate(operators) if is_product(called)}
        squared = _SQUARED if self._has_squares else _SQUARE
        sums = {k for k, called in enumerate(operators) if is_one(called, *squared)}
        marks: dict[int, Mark] = {}
        for node, operator in enumerate(self.flat.operator) if products else ():
            if operator in products or operator in sums:
                summed = self._squared(node)
                if summed is not None:
                    _add(marks, self._met_by(node, *summed))
            if operator in products:
                _add(marks, self._meeting_constants(node))
        return marks

    @cached_property
    def _has_squares(self) -> bool:
        """Whether anything may be squared on its own, in front of a sum."""
        return any(is_one(called, "Mul", "Pow") for called in self.flat.operators)

    def _squared(self, node: int) -> tuple[int, list[int]] | None:
        """Return what a node sums up the squares of, and the nodes that make these; or None."""
        called, read = self.flat.called(node), self.data(node)
        if not read:  # whole numbers
            return None
        if is_product(called):
            if len(read) < 2:
                return None
            if not self.is_constant(read[1]):
                base = self.base(read[0])
                if base != self.base(read[1]):
                    return None
                return base, [node, *self.between(read[0]), *self.between(read[1])]
            square = self._square(read[0]) if self._has_squares else None
        elif is_one(called, "ReduceSumSquare", "ReduceL2"):
            return self.base(read[0]), [node, *self.between(read[0])]
        elif is_one(called, "ReduceSum", "ReduceMean"):
            square = self._square(read[0]) or self._diagonal(read[0])
        else:
            return None
        return None if square is None else (square[0], [node, *square[1]])

    def _square(self, value: int) -> tuple[int, list[int]] | None:
        """Return what a value is the square of, and the nodes that make it; None for no square."""
        node = self.flat.producer[self.base(value)]
        if node == ABSENT:
            return None
        called, read = self.flat.called(node), self.flat.inputs_of(node)
        nodes = [*self.between(value), node]
        if is_one(called, "Mul") and self.base(read[0]) == self.base(read[1]):
            return self.base(read[0]), [*nodes, *self.between(read[0]), *self.between(read[1])]
        exponent = moved_elements(self.flat, read[1]) if is_one(called, "Pow") else None
        if exponent is not None and exponent.size and np.all(exponent == 2):
            return self.base(read[0]), [*nodes, *self.between(read[0])]
        return None

    def _diagonal(self, value: int) -> tuple[int, list[int]] | None:
        """Return what a product with itself was made of, and the nodes, where a value masks it.

        Squared lengths as the sum of the Gram matrix times the unit matrix.
        """
        nodes = self.between(value)
        product = self.flat.producer[self.base(value)]
        factors = self.factors(product) if product != ABSENT else []
        if len(factors) < 2 or self.base(factors[0]) != self.base(factors[1]):
            return None
        scales = [scaled[1] for n in nodes if (scaled := self.factor(n)) is not None]
        held = [stored_tensor(self.flat, moved_from(self.flat, scale)) for scale in scales]
        if not any(tensor is not None and tensor.size > 1 for tensor in held):
            return None
        return self.base(factors[0]), [*nodes, product, *self._moved(product)]

    def _met_by(self, node: int, base: int, squares: list[int]) -> dict[int, Mark]:
        """Return the marks of the products that a sum of squares meets, with the way to them."""
        marks: dict[int, Mark] = {}
        stack = [(self.flat.outputs_of(node)[0], list[int]())]
        seen = {stack[0][0]}
        while stack:
            value, way = stack.pop()
            for reader in dict.fromkeys(self.flat.readers(value)):
                products = self._products_beside(reader, value, node, base)
                for product, between in products:
                    detail = self._met(product, base)
                    nodes = [*squares, *way, reader, *between, product, *self._moved(product)]
                    marks |= self._marks(nodes, detail)
                result = self.flat.outputs_of(reader)[0]
                if result not in seen and len(way) < _STEPS and self._goes_on(reader):
                    seen.add(result)
                    stack.append((result, [*way, reader]))
        return marks

    def _goes_on(self, reader: int) -> bool:
        """Tell whether what reads a sum of squares hands it on: it moves, scales or adds."""
        called = self.flat.called(reader)
        if self.factor(reader) is not None or has(called, Trait.MOVES, Trait.CASTS, Trait.ADDS):
            return True
        if is_one(called, "Mul"):  # the square of a norm
            first, second = self.flat.inputs_of(reader)
            return self.base(first) == self.base(second)
        return is_one(called, "Sub", "Neg", "Pow", "ReduceSum")

    def _products_beside(
        self, reader: int, value: int, origin: int, base: int
    ) -> Iterator[tuple[int, list[int]]]:
        """Yield the products of `base` that a reader of its squares adds to them, and the way."""
        called = self.flat.called(reader)
        if is_product(called):
            # The addend of a Gemm, or squares that stand beside what they are of in one operand.
            read = self.flat.inputs_of(reader)
            if value in read[2:]:
                if any(self._is_of(v, base) for v in self.factors(reader)):
                    yield reader, []
            elif any(self._holds(v, base) for v in self.factors(reader)):
                yield reader, []
            return
        if not (has(called, Trait.ADDS) or is_one(called, "Sub")):
            return
        for other in self.data(reader):
            for node, way in self.walk_back(
                other, having(Trait.MOVES, Trait.CASTS) | _SUMS | {"Neg"}
            ):
                if node != origin and any(self._is_of(v, base) for v in self.factors(node)):
                    yield node, way

    def _is_of(self, value: int, base: int) -> bool:
        """Tell whether a value is a base, moved or scaled, or a constant that holds its numbers."""
        own = self.base(value)
        if own == base or not (self.is_constant(own) and self.is_constant(base)):
            return own == base
        first, second = self._elements(own), self._elements(base)
        if first is None or second is None or first.ndim != 2 or first.size != second.size:
            return False
        if first.shape != second.shape:
            first = first.T
        return first.shape == second.shape and _is_multiple(first, second)

    def _holds(self, value: int, base: int) -> bool:
        """Tell whether a Concat, perhaps moved, has `base` beside its squares."""
        node = self.flat.producer[self.base(value)]
        return (
            node != ABSENT
            and is_one(self.flat.called(node), "Concat")
            and any(self.base(v) == base for v in self.data(node))
        )

    def _moved(self, product: int) -> list[int]:
        """Return what moves or scales the operands of a product."""
        return [n for v in self.factors(product) for n in self.between(v)]

    def _meeting_constants(self, product: int) -> dict[int, Mark]:
        """Return the marks of a product to which the squares of its weights are added."""
        addends = list(self._constant_addends(product))
        weights = [v for v in self.factors(product) if self.is_constant(v)] if addends else []
        if len(weights) != 1:
            return {}
        for addend, way in addends:
            if self._sums_squares(weights[0], addend):
                detail = self._met(product, weights[0])
                return self._marks([product, *way, *self._moved(product)], detail)
        return {}

    def _constant_addends(self, product: int) -> Iterator[tuple[int, list[int]]]:
        """Yield the constants that are added to a product, with the nodes up to their sum."""
        for value in self.flat.inputs_of(product)[2:3]:
            if value != ABSENT and self.is_constant(value):
                yield value, []
        value, way = self.flat.outputs_of(product)[0], list[int]()
        while len(way) < _STEPS:
            readers = set(self.flat.readers(value))
            if len(readers) != 1:
                return
            reader = readers.pop()
            way = [*way, reader]
            called = self.flat.called(reader)
            if has(called, Trait.ADDS) or is_one(called, "Sub"):
                for other in self.data(reader):
                    if other != value and self.is_constant(other):
                        yield other, way
            elif self.factor(reader) is None and not has(called, Trait.MOVES, Trait.CASTS):
                return
            value = self.flat.outputs_of(reader)[0]

    def _sums_squares(self, weight: int, addend: int) -> bool:
        """Tell whether a constant is, but for one factor, the sums of squares of a weight."""
        sums = self._elements(addend)
        if sums is None or sums.size < 2 or not (sums.min() > 0 or sums.max() < 0):
            return False  # a bias has either sign
        matrix = self._elements(weight)
        if matrix is None or matrix.ndim < 2:
            return False
        squares = np.square(matrix.astype(np.float64))
        flat_sums = sums.astype(np.float64).reshape(-1)
        rows = (squares.sum(axis=-2), squares.sum(axis=-1), squares.reshape(len(matrix), -1).sum(1))
        for row in (row.reshape(-1) for row in rows):
            if row.size == flat_sums.size and row.all() and _is_multiple(flat_sums, row):
                return True
        return False

    def _elements(self, value: int) -> Array | None:
        held = stored_tensor(self.flat, moved_from(self.flat, value))
        return None if held is None or held.size > MOST_READ else held.numpy()

    def _met(self, product: int, operand: int) -> str:
        names = self.flat.value_names
        return f"{self.flat.node_names[product]} meets the sum of the squares of {names[operand]}"

    def _marks(self, nodes: list[int], detail: str) -> dict[int, Mark]:
        mark = Mark(Color.NONE, Reason.DIFFERENCE, None, detail)
        return {v: mark for n in nodes for v in self.graph.vertices_of(n)}


def _is_multiple(numbers: Array, others: Array) -> bool:
    """Tell whether numbers are others of the same shape times one factor, but for rounding."""
    largest = np.abs(others).argmax()
    factor = numbers.flat[largest] / others.flat[largest] if others.flat[largest] else 0
    scaled = factor * others
    return bool(factor) and bool((np.abs(numbers - scaled) <= 1e-3 * np.abs(scaled)).all())


def _add(marks: dict[int, Mark], more: Mapping[int, Mark]) -> None:
    """Add marks; the first one of a vertex stays."""
    for vertex, mark in more.items():
        marks.setdefault(vertex, mark)
