"""Inputs that meet a constant table in a distance: Gaussian processes, neighbours, codebooks.

Normal numbers are far from every row of such a table, where kernels are zero and nothing is near.
What users feed is like the rows: made-up inputs are rows with noise, some of them nearly equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.traits import Trait, has, operator
from amp_rewrite.numerics.inputs.batches import Array
from amp_rewrite.numerics.inputs.consumers import Consumers, constant, moves
from amp_rewrite.numerics.inputs.scalings import Chain, Scaling, chain_of

_NOISE = (0.01, 0.1, 0.3, 1.0)
"""How far from a row of the table inputs are, in deviations of the table."""


@dataclass(frozen=True, eq=False)
class Table:
    """A constant that an input is compared with row by row.

    Attributes:
        held: Its numbers; the axis of the features has the length that those of the input have.
        chain: The arithmetic between the input and the comparison.
    """

    held: Array
    chain: Chain

    def near(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array | None:
        """Return inputs that are like rows of the table; None if its rows do not fit the shape."""
        rows = self._rows(shape)
        if rows is None or not math.prod(shape):
            return None
        count = math.prod(shape) // rows.shape[1]
        picked = rows[rng.integers(0, len(rows), count)]
        distance = rng.choice(_NOISE, (count, 1)) * _deviation(rows)
        near_rows = picked + distance * rng.standard_normal(picked.shape)
        inputs = self.chain.inverted(near_rows.reshape(shape))
        return inputs if inputs.shape == shape and np.isfinite(inputs).all() else None

    def scaling(self, shape: tuple[int, ...]) -> Scaling | None:
        """Return in which numbers the input comes; None if the rows do not fit its shape."""
        rows = self._rows(shape)
        if rows is None:
            return None
        spread = _deviation(rows) / np.abs(self.chain.factor)
        return Scaling(self.chain.inverted(rows.mean()), spread)

    def _rows(self, shape: tuple[int, ...]) -> Array | None:
        """Return the rows, (n, features), for an input of a shape, (..., features)."""
        factor = self.chain.factor
        if not (self.held.size and factor.all() and np.isfinite(factor).all()):
            return None
        for features in (*shape[-1:], math.prod(shape[1:])):
            if features == 1:
                return self.held.reshape(-1, 1)
            axes = [axis for axis, length in enumerate(self.held.shape) if length == features]
            if axes:
                return np.moveaxis(self.held, axes[-1], -1).reshape(-1, features)
            if features and self.held.size == features:
                return self.held.reshape(1, -1)
        return None


def _deviation(rows: Array) -> float:
    return float(rows.std()) or 1.0


def tables_of(model: ir.Model) -> dict[str, Table]:
    """Return the tables that inputs of floats are compared with, by name of the input."""
    consumers = Consumers(model)
    tables: dict[str, Table] = {}
    for value in model.graph.inputs:
        chain = chain_of(value)
        for start in (chain, Chain(value, np.ones(()), np.zeros(()))):
            held = next(_compared_constants(consumers, start.end), None)
            if held is not None:
                tables[value.name or ""] = Table(held, start)
                break
    return tables


def _compared_constants(consumers: Consumers, value: ir.Value) -> Iterator[Array]:
    """Yield the constants that a value, moved or not, is compared with."""
    products: list[tuple[ir.Node, Array]] = []
    squares: list[ir.Value] = []
    for node, index in consumers.uses(value, moves):
        kind, other = operator(node), _other_constant(node, index)
        if kind in _DIFFERENCES and other is not None and _is_table(consumers, node, other):
            yield -_numbers(other) if kind == "Add" else _numbers(other)
        elif kind == "com.microsoft::CDist" and other is not None:
            yield _numbers(other)
        elif kind in _PRODUCTS and index == 0 and other is not None and len(other.shape) == 2:
            held = _numbers(other)
            is_turned = node.attributes.get_int("transB", 0)
            products.append((node, held if is_turned else held.T))
        elif _is_square(node):
            squares += node.outputs
    if products and squares:
        sums = {node for value in squares for node, _ in consumers.uses(value, _to_square)}
        for node, held in products:
            met = (n for n, _ in consumers.uses(node.outputs[0], _scales))
            if any(has(n, Trait.ADDS) or operator(n) == "Sub" for n in sums.intersection(met)):
                yield held


def _other_constant(node: ir.Node, index: int) -> ir.TensorProtocol | None:
    """Return the constant that is the other one of a node's first two inputs."""
    return constant(node.inputs[1 - index]) if index < 2 <= len(node.inputs) else None


def _numbers(tensor: ir.TensorProtocol) -> Array:
    return tensor.numpy().astype(np.float64)


def _is_table(consumers: Consumers, node: ir.Node, other: ir.TensorProtocol) -> bool:
    """Tell a table from means, biases and embeddings of positions.

    Two axes that are subtracted are rows and features; one axis, or a sum, is a table only if the
    difference is squared.
    """
    axes = sum(length > 1 for length in other.shape.numpy())
    if axes > 1 and operator(node) == "Sub":
        return True
    uses = consumers.uses(node.outputs[0], _scales)
    return axes > 0 and any(_is_square(n) for n, _ in uses)


def _is_square(node: ir.Node) -> bool:
    kind = operator(node)
    if kind == "Mul":
        return node.inputs[0] is node.inputs[1]
    if kind == "Pow":
        power = constant(node.inputs[1])
        return power is not None and power.size == 1 and float(power.numpy().reshape(-1)[0]) == 2
    return kind in _NORMS


def _scales(node: ir.Node, index: int) -> bool:
    """Tell whether a node moves a value, changes its sign, or computes with a constant."""
    if moves(node, index) or has(node, Trait.CHANGES_SIGN):
        return True
    return operator(node) in _SCALING and _other_constant(node, index) is not None


def _to_square(node: ir.Node, index: int) -> bool:
    return _scales(node, index) or (has(node, Trait.SUMS_UP) and index == 0)


# operators: what tells how far a value is from a table
_DIFFERENCES = frozenset({"Sub", "Add"})
# operators: |x|^2 - 2 x y + |y|^2 has one of them
_PRODUCTS = frozenset({"MatMul", "Gemm"})
# operators: arithmetic with constants
_SCALING = frozenset({"Add", "Sub", "Mul", "Div"})
# operators: norms of a vector, for which no trait tells which norm
_NORMS = frozenset({"Abs", "ReduceL1", "ReduceL2", "ReduceSumSquare"})
