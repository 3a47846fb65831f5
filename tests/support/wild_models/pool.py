"""One graph under construction: the values that its nodes may read, and the nodes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE
FLOAT16, BFLOAT16 = TensorProto.FLOAT16, TensorProto.BFLOAT16
INT64, INT32, BOOL = TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL

LARGEST = 16.0
"""A value that may be larger than this is squeezed before others read it."""

MOST_ELEMENTS = 256
"""Rows add no value with more elements."""


@dataclass(frozen=True)
class Value:
    """A tensor: its name, its element type, its shape and what no element exceeds."""

    name: str
    dtype: int
    shape: tuple[int, ...]
    bound: float = LARGEST

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass
class Names:
    """What the graphs of one model share."""

    rng: random.Random
    opset: int
    count: int = 0
    initializers: list[TensorProto] = field(default_factory=list[TensorProto])
    inputs: list[Value] = field(default_factory=list[Value])
    functions: list[onnx.FunctionProto] = field(default_factory=list[onnx.FunctionProto])
    shared: dict[Any, str] = field(default_factory=dict[Any, str])

    def new(self, stem: str) -> str:
        """Return a name that nothing has; some hold what names rarely do."""
        self.count += 1
        odd = self.rng.random()
        if odd < 0.05:
            return f"{stem} {self.count}"
        return f"{stem}é/{self.count}" if odd < 0.08 else f"{stem}{self.count}"


@dataclass
class Pool:
    """A graph: what its nodes may read, and the nodes.

    Attributes:
        is_main: Whether it may have initializers that are inputs or outputs of the model.
        in_function: Whether it is the body of a function, whose constants are nodes.
    """

    names: Names
    values: list[Value]
    depth: int = 0
    is_main: bool = False
    in_function: bool = False
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    initializers: list[TensorProto] = field(default_factory=list[TensorProto])
    own: list[Value] = field(default_factory=list[Value])

    @property
    def rng(self) -> random.Random:
        return self.names.rng

    @property
    def opset(self) -> int:
        return self.names.opset

    def add(
        self, op: str, inputs: Sequence[Value | str], outputs: int = 1, **attributes: Any
    ) -> list[str]:
        """Add a node; return the names of its outputs."""
        made = [self.names.new("v") for _ in range(outputs)]
        read = [given.name if isinstance(given, Value) else given for given in inputs]
        name = self.rng.choice(("", f"{op}_{len(self.nodes)}", f"n{self.names.count}_{op}"))
        self.nodes.append(helper.make_node(op, read, made, name, **attributes))
        return made

    def keep(self, name: str, dtype: int, shape: Sequence[int], bound: float = LARGEST) -> Value:
        """Add a value that a node computed; a large float is squeezed."""
        value = Value(name, dtype, tuple(shape), bound)
        if dtype == FLOAT and not bound <= LARGEST:
            value = Value(self.add("Tanh", [value])[0], dtype, value.shape, 1.0)
        self.values.append(value)
        self.own.append(value)
        return value

    def one(self, op: str, inputs: Sequence[Value | str], like: Value, **attributes: Any) -> Value:
        """Add a node with one result of another value's type, shape and bound."""
        made = self.add(op, inputs, **attributes)[0]
        return self.keep(made, like.dtype, like.shape, like.bound)

    def find(self, fits: Callable[[Value], bool]) -> Value | None:
        """Return a value, a late one rather than an early one; None if there is none."""
        found = [value for value in self.values if fits(value)]
        if not found:
            return None
        back = min(int(self.rng.expovariate(0.4)), len(found) - 1)
        return found[-1 - back]

    def take(self, rank: int | None = None, least: int = 0) -> Value:
        """Return a float32 value of a rank, or of at least one."""
        found = self.find(
            lambda v: (
                v.dtype == FLOAT
                and (len(v.shape) == rank if rank is not None else len(v.shape) >= least)
            )
        )
        if found is None or self.rng.random() < 0.05:
            shape = self.shape(least if rank is None else rank, rank)
            return self.number(*shape)
        return found

    def shape(self, least: int, rank: int | None = None) -> tuple[int, ...]:
        length = self.rng.randint(least, 4) if rank is None else rank
        return tuple(self.rng.choice((1, 2, 3, 4)) for _ in range(length))

    def eighths(self, shape: Sequence[int], most: int = 8) -> np.ndarray:
        """Return multiples of an eighth, which both 16-bit types hold."""
        count = int(np.prod(shape, dtype=np.int64))
        given = [self.rng.randint(-most, most) / 8 for _ in range(count)]
        return np.array(given, np.float32).reshape(shape)

    def number(self, *shape: int, most: int = 8) -> Value:
        """Return a float32 constant with random elements."""
        return self.constant(self.eighths(shape, most))

    def ints(self, *numbers: int) -> Value:
        """Return an int64 constant of rank 1."""
        return self.constant(np.array(numbers, np.int64))

    def scalar(self, number: float, dtype: type = np.int64) -> Value:
        return self.constant(np.array(number, dtype))

    def constant(self, array: np.ndarray) -> Value:
        """Return a constant, in one of the ways in which files hold them."""
        kind, key = self.rng.random(), (array.dtype.str, array.shape, array.tobytes())
        dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
        bound = float(np.abs(array.astype(np.float64)).max(initial=0.0))

        def value(name: str) -> Value:
            return Value(name, dtype, array.shape, bound)

        if self.in_function or kind < 0.3:
            name = self.names.new("c")
            tensor = numpy_helper.from_array(array, name)
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
            return value(name)
        if key in self.names.shared and kind < 0.7:
            return value(self.names.shared[key])
        name = self.names.new("c")
        tensor = numpy_helper.from_array(array, name)
        if self.depth and kind < 0.8:
            self.initializers.append(tensor)
            return value(name)
        self.names.initializers.append(tensor)
        self.names.shared[key] = name
        if array.dtype == np.float32 and array.size > 1 and kind > 0.97:
            self.names.inputs.append(value(name))  # one that callers may feed
        return value(name)

    def inside(self, values: Sequence[Value], *, in_function: bool = False) -> Pool:
        """Return the graph of a body that may read these values."""
        within = self.in_function or in_function
        return Pool(self.names, list(values), self.depth + 1, in_function=within)

    def graph(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> onnx.GraphProto:
        """Return the graph of a body."""
        name = self.names.new("body")
        given, made = [[declared(v) for v in values] for values in (inputs, outputs)]
        return helper.make_graph(self.nodes, name, given, made, self.initializers)


Row = Callable[[Pool], Any]
"""Adds the nodes of one operator, and the values that they compute."""


def declared(value: Value) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(value.name, value.dtype, value.shape)


def axes_of(pool: Pool, op: str, axes: Sequence[int], since: int = 18) -> tuple[list[Value], Any]:
    """Return the axes of a reduction as inputs and attributes, as the opset has them."""
    if op == "ReduceSum" or pool.opset >= since:
        return [pool.ints(*axes)], {}
    return [], {"axes": list(axes)}
