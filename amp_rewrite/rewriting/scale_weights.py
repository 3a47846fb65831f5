"""Quotients by a number, computed into weights from which only linear arithmetic leads to them.

softmax((q k' + r) / c) of a network that rotates, gathers or adds up what it gets of its weights is
computed with weights that are 1 / c of them: every value in between becomes 1 / c of what it was.
So it may if all that reads such a value is linear in it, up to divisions by c, which go. A product
with a number is a quotient by its reciprocal.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.traits import Trait, having, operator
from amp_rewrite.rewriting.constant_inputs import (
    Array,
    bypass,
    constant,
    held_by,
    number,
    set_inputs,
    stored,
)

# operators: those that give a number times their result if the first input is that, or if all are.
_OF_FIRST = having(Trait.REARRANGES) | {
    "Expand",
    "Gather",
    "GatherElements",
    "Neg",
    "Slice",
    "Tile",
}
# operators: those that read a shape alone.
_SIZES = frozenset({"Shape", "Size"})
# operators: as of first.
_OF_ALL = frozenset({"Add", "Concat", "Sub", "Sum"})
# operators: those of several ways.
_PRODUCTS = {"Gemm": ((1, 2), (0, 2)), "MatMul": ((1,), (0,)), "Mul": ((0,), (1,))}
"""Which inputs of a product may be scaled in its place: weights first."""

MOST_VALUES = 64
"""How many values are scaled for a number at most; from weights to a quotient there are ten."""

MOST_TRIES = 256
"""How many ways to scale something are looked at for a number; products of two values have two."""

MOST_TRIES_IN_ALL = 64 * MOST_TRIES
"""How many for all numbers of a model: of models with tens of thousands of them the first ones."""

MOST_COPIED = 0.05
"""What share of a model's constants is stored again at most, where something else reads them."""

_Inputs = tuple[int, ...]


@dataclass
class _Scaled:
    """What is scaled together.

    Attributes:
        values: What other nodes make.
        inputs: Node -> those of its inputs that are.
        constants: Nodes, with the inputs that are constants.
        quotients: The divisions that go.
    """

    values: set[ir.Value] = field(default_factory=set[ir.Value])
    inputs: dict[ir.Node, _Inputs] = field(default_factory=dict[ir.Node, _Inputs])
    constants: list[tuple[ir.Node, int]] = field(default_factory=list[tuple[ir.Node, int]])
    quotients: list[ir.Node] = field(default_factory=list[ir.Node])

    def copy(self) -> _Scaled:
        """Return one that may be added to."""
        return _Scaled({*self.values}, {**self.inputs}, [*self.constants], [*self.quotients])


def scale_weights(model: ir.Model, low: DType) -> int:
    """Compute quotients by numbers whose reciprocal a type does not hold into weights, in place.

    Args:
        model: A model; subgraphs are left as they are.
        low: The type.

    Returns:
        How many quotients went.
    """
    count, tries = 0, MOST_TRIES_IN_ALL
    tensors = (value.const_value for value in model.graph.initializers.values())
    most = MOST_COPIED * sum(tensor.size for tensor in tensors if tensor is not None)
    for node in list(model.graph):
        index, divisor = _quotient(node) or (0, 0.0)
        if node.graph is None or not divisor or is_exact(1 / divisor, low) or tries <= 0:
            continue
        search = _Search(divisor)
        scaled = search.solved(_Scaled(), [node.inputs[index]])
        tries -= MOST_TRIES - search.tries
        if scaled is not None and _copied(scaled) <= most and _scale(scaled, divisor):
            count += len(scaled.quotients)
    return count


@dataclass
class _Search:
    """A search for what is scaled with some values, by a number."""

    divisor: float
    tries: int = MOST_TRIES

    def solved(self, scaled: _Scaled, pending: list[ir.Value | None]) -> _Scaled | None:
        """Return what has to be scaled for values to be, None if they cannot be."""
        self.tries -= 1
        while pending:
            value = pending.pop()
            if value in scaled.values:
                continue
            maker = None if value is None or value.is_graph_output() else value.producer()
            full = len(scaled.values) == MOST_VALUES or self.tries < 0
            if value is None or maker is None or full:
                return None
            scaled.values.add(value)
            for node, index in value.uses():
                near = node.graph is maker.graph
                if not (near and self._read(scaled, node, index, pending)):
                    return None
            if maker not in scaled.inputs:
                return self._made(scaled, maker, pending)
        return scaled

    def _read(
        self, scaled: _Scaled, node: ir.Node, index: int, pending: list[ir.Value | None]
    ) -> bool:
        """Tell whether what reads a value may be scaled with it, or divides it by the number."""
        if _quotient(node) == (index, self.divisor):
            scaled.quotients.append(node)
            return not node.outputs[0].is_graph_output()
        if operator(node) in _SIZES:
            return True
        ways = [way for way in _ways(node) if index in way]
        return len(ways) == 1 and _follow(scaled, node, ways[0], pending)

    def _made(
        self, scaled: _Scaled, maker: ir.Node, pending: list[ir.Value | None]
    ) -> _Scaled | None:
        """Go on with the first way of scaling what a node reads that leads to an end."""
        for way in _ways(maker):
            trial, more = scaled.copy(), [*pending]
            if _follow(trial, maker, way, more):
                solution = self.solved(trial, more)
                if solution is not None:
                    return solution
        return None


def _follow(
    scaled: _Scaled, node: ir.Node, inputs: _Inputs, pending: list[ir.Value | None]
) -> bool:
    """Add what is scaled with inputs of a node; tell whether its results are, if they are."""
    if node in scaled.inputs:
        return scaled.inputs[node] == inputs
    scaled.inputs[node] = inputs
    for index in inputs:
        value = node.inputs[index] if index < len(node.inputs) else None
        if value is None:
            continue
        if _weights(value) is None:
            pending.append(value)
        elif operator(node) == "Mul" or operator(node) in _OF_FIRST:
            return False  # a number that would be cut itself, or a table
        else:
            scaled.constants.append((node, index))
    pending += node.outputs
    return True


def _ways(node: ir.Node) -> tuple[_Inputs, ...]:
    """Return which inputs of a node may be scaled for its results to be."""
    called = operator(node)
    if called in _OF_ALL:
        return (tuple(range(len(node.inputs))),)
    return ((0,),) if called in _OF_FIRST else _PRODUCTS.get(called, ())


def _weights(value: ir.Value | None) -> ir.Value | None:
    """Return the constant that a value is, or whose transpose it is."""
    maker = None if value is None else value.producer()
    if maker is not None and operator(maker) == "Transpose":
        value = maker.inputs[0]
    return None if held_by(value) is None else value


def _scale(scaled: _Scaled, divisor: float) -> bool:
    """Scale it; tell whether that was done: numbers that are not finite are not divided."""
    numbers = [_numbers(node.inputs[index]) for node, index in scaled.constants]
    finite = [array for array in numbers if array is not None]
    if len(finite) < len(numbers):
        return False
    for (node, index), array in zip(scaled.constants, finite, strict=True):
        inputs, name = [*node.inputs], node.outputs[0].name
        inputs[index] = stored(node, array / divisor, f"{name}:constant {index}")
        set_inputs(node, *inputs)
    for value in scaled.values:
        value.name = f"{value.name}:scaled"
    for quotient in scaled.quotients:
        index, _ = _quotient(quotient) or (0, divisor)
        if (dividend := quotient.inputs[index]) is not None:
            bypass(quotient, dividend)
    return True


def _copied(scaled: _Scaled) -> int:
    """Return how many elements of constants something else reads as well."""
    read = Counter(_weights(node.inputs[index]) for node, index in scaled.constants)
    return sum(
        value.const_value.size
        for value, times in read.items()
        if value is not None and value.const_value is not None and _reads(value) > times
    )


def _reads(value: ir.Value) -> int:
    """Return how many inputs read a constant, or its transpose."""
    readers = [use.node for use in value.uses()]
    turned = [n.outputs[0] for n in readers if operator(n) == "Transpose"]
    return len(readers) - len(turned) + sum(len(v.uses()) for v in turned)


def _numbers(value: ir.Value | None) -> Array | None:
    held = _weights(value)
    numbers, maker = constant(held), None if value is None else value.producer()
    if numbers is None or held is value or maker is None:
        return numbers
    return numbers.transpose(maker.attributes.get_ints("perm", None))


def _quotient(node: ir.Node) -> tuple[int, float] | None:
    """Return which input a node divides by a number, and the number, if it does."""
    if operator(node) == "Div":
        divisor = number(node.inputs[1])
        return None if divisor is None else (0, divisor)
    for index, other in ((0, 1), (1, 0)) if operator(node) == "Mul" else ():
        factor = number(node.inputs[other])
        if factor:
            return index, 1 / factor
    return None


def is_exact(factor: float, low: DType) -> bool:
    """Tell whether a low type holds a number as float32 does."""
    return float(np.float32(factor).astype(low.numpy)) == float(np.float32(factor))
