"""One graph under construction: its values with their bounds, and its nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from amp_rewrite.dtypes import DType

SHAPE = (2, 4)
LARGEST = 8.0
"""A value that may be larger than this is squeezed before others read it."""

Rng = np.random.Generator


@dataclass(frozen=True)
class Value:
    """A float32 tensor of shape SHAPE.

    Attributes:
        name: Its name.
        bound: No element is larger in magnitude, rounded or not.
        error: No element of a rewritten model is further away from the original's.
    """

    name: str
    bound: float
    error: float

    @property
    def exact(self) -> bool:
        """Whether rounding changes nothing: small multiples of an eighth."""
        return self.error == 0


@dataclass
class Names:
    """The names of one model, and the constants that it needs."""

    low: DType
    count: int = 0
    constants: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    functions: list[onnx.FunctionProto] = field(default_factory=list[onnx.FunctionProto])
    operators: set[str] = field(default_factory=set[str])

    def new(self, stem: str) -> str:
        """Return a name that nothing has."""
        self.count += 1
        return f"{stem}{self.count}"


@dataclass
class Scope:
    """A graph: what its nodes may read, and the nodes."""

    names: Names
    rng: Rng
    values: list[Value]
    depth: int = 0
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])

    def add(
        self, op: str, inputs: Sequence[Value | str], outputs: int = 1, **attributes: Any
    ) -> list[str]:
        """Add a node; return the names of its outputs."""
        made = [self.names.new(op) for _ in range(outputs)]
        read = [given.name if isinstance(given, Value) else given for given in inputs]
        name = self.names.new(f"{op}_node")
        self.nodes.append(helper.make_node(op, read, made, name, **attributes))
        self.names.operators.add(op)
        return made

    def constant(self, array: Any, dtype: type = np.float32) -> str:
        """Return the name of a constant, which the main graph holds."""
        name = self.names.new("c")
        self.names.constants[name] = np.asarray(array, dtype)
        return name

    def weight(self, *shape: int) -> tuple[str, np.ndarray]:
        """Return a constant of random numbers from -0.5 to 0.5."""
        array = self.rng.uniform(-0.5, 0.5, shape).astype(np.float32)
        return self.constant(array), array

    def pick(self) -> Value:
        """Return a value, a late one rather than an early one, as a node may read it: rounded."""
        back = min(int(self.rng.geometric(0.35)), len(self.values))
        return self.rounded(self.values[-back])

    def pick_exact(self) -> Value:
        """Return a value that rounding does not change; the inputs of the model are such."""
        exact = [value for value in self.values if value.exact]
        if not exact:
            exact = [self._zeros()]
        return exact[int(self.rng.integers(len(exact)))]

    def _zeros(self) -> Value:
        """Add zeros, for a body that reads rounded values alone."""
        zeros = numpy_helper.from_array(np.zeros(SHAPE, np.float32))
        made = Value(self.add("Constant", [], value=zeros)[0], 0.0, 0.0)
        self.values.append(made)
        return made

    def rounded(self, value: Value) -> Value:
        """Return the bounds of a value after a Cast to the low type."""
        return replace(value, error=value.error + self.rounding(value))

    def rounding(self, value: Value) -> float:
        """Return how far a Cast to the low type moves a value; half a gap, or half a subnormal."""
        if value.exact:
            return 0.0
        low = self.names.low
        return (value.bound + value.error) * low.epsilon / 2 + low.smallest_subnormal / 2

    def keep(self, name: str, bound: float, error: float, *, moved: bool = False) -> Value:
        """Add a value that a node computed.

        Args:
            name: Its name.
            bound: What it cannot exceed.
            error: What the errors of what it was computed from make of it.
            moved: Whether its elements are those of inputs, so that the node rounds nothing.
        """
        value = Value(name, bound, error)
        if not moved:
            value = self.rounded(replace(value, error=error + _SINGLE * bound))
        if value.bound + value.error > LARGEST:
            squeezed = self.add("Tanh", [value])[0]
            # both models stay between -1 and 1, however far apart they were
            value = self.rounded(Value(squeezed, 1.0, min(2.0, self.rounded(value).error)))
        self.values.append(value)
        return value

    def inside(self, values: list[Value]) -> Scope:
        """Return the scope of a subgraph that reads these values."""
        return Scope(self.names, self.rng, values, self.depth + 1)

    def graph(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> onnx.GraphProto:
        """Return the graph."""
        return helper.make_graph(self.nodes, name, list(inputs), list(outputs))


_SINGLE = 64 * np.finfo(np.float32).eps
"""What float32 arithmetic inside one node may add, relative to its bound: sums of up to 32."""

Row = Callable[[Scope], Any]
"""Adds the nodes of one operator, and the values that they compute."""


def declared(name: str, shape: Sequence[int] = SHAPE, dtype: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def stored(constants: dict[str, np.ndarray], used: set[str]) -> list[onnx.TensorProto]:
    return [numpy_helper.from_array(a, name) for name, a in constants.items() if name in used]
