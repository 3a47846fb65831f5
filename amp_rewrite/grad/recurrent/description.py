"""What an LSTM, GRU or RNN node says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import onnx_ir as ir

Length = int | ir.SymbolicDim | None


class Emitter:
    """Makes the nodes of one graph.

    Attributes:
        nodes: Those made so far.
    """

    def __init__(self, numbers: count[int] | None = None) -> None:
        """Begin without nodes; emitters of one function share the `numbers` of names."""
        self.nodes: list[ir.Node] = []
        self._numbers = count() if numbers is None else numbers

    def inside(self) -> Emitter:
        """Return an emitter for a graph inside this one."""
        return Emitter(self._numbers)

    def op(
        self, op_type: str, *inputs: ir.Value | None, outputs: int = 1, **attributes: Any
    ) -> Any:
        """Append a node; return its output, or a tuple of them."""
        number = next(self._numbers)
        node = ir.Node(
            "",
            op_type,
            inputs,
            ir.convenience.convert_attributes(attributes),
            outputs=[ir.Value(name=f"v{number}_{k}") for k in range(outputs)],
            name=f"{op_type}_{number}",
        )
        self.nodes.append(node)
        return node.outputs[0] if outputs == 1 else tuple(node.outputs)

    def value(self, stem: str, dtype: ir.DataType, shape: Sequence[Length] = ()) -> ir.Value:
        """Return an input for the graph."""
        name = f"{stem}_{next(self._numbers)}"
        return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))

    def constant(self, value: Any, dtype: ir.DataType = ir.DataType.INT64) -> ir.Value:
        """Return a constant."""
        return self.op("Constant", value=ir.Tensor(np.array(value, dtype.numpy())))

    def split(self, x: ir.Value, axis: int, parts: int, length: int) -> list[ir.Value]:
        """Return equal parts along an axis."""
        if parts == 1:
            return [x]
        lengths = self.constant([length] * parts)
        return list(self.op("Split", x, lengths, axis=axis, outputs=parts))

    def stack(self, values: Sequence[ir.Value], axis: int) -> ir.Value:
        """Return values along a new axis."""
        axes = self.constant([axis])
        return self.op("Concat", *(self.op("Unsqueeze", v, axes) for v in values), axis=axis)

    def reversed(self, x: ir.Value) -> ir.Value:
        """Return x with its first axis turned around."""
        first, end, axis, step = ([-1], [int(np.iinfo(np.int64).min)], [0], [-1])
        return self.op("Slice", x, *map(self.constant, (first, end, axis, step)))


# operators: the activations that each has by default.
_ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "RNN": ("Tanh",),
}
OPERATORS = frozenset(_ACTIVATIONS)
"""The recurrent operators."""

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_LONGEST_UNROLLED = 64


@dataclass(frozen=True)
class Description:
    """A recurrent node's attributes, and what the shapes of its inputs tell.

    Attributes:
        node: The node.
    """

    node: ir.Node

    @property
    def op(self) -> str:
        """The operator."""
        return self.node.op_type

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the inputs that are initial states."""
        return ("initial_h", "initial_c") if self.op == "LSTM" else ("initial_h",)

    @property
    def by_batch(self) -> bool:
        """Whether the batch is the first axis of X, Y and the states (`layout`)."""
        return bool(self.node.attributes.get_int("layout", 0))

    @property
    def directions(self) -> tuple[bool, ...]:
        """Per direction, whether it runs backwards."""
        return _DIRECTIONS[self.node.attributes.get_string("direction", "forward")]

    @property
    def dtype(self) -> ir.DataType:
        """The type of X."""
        x = self.node.inputs[0]
        return (None if x is None else x.dtype) or ir.DataType.FLOAT

    @property
    def steps(self) -> int | None:
        """How long the sequences are, if that is known."""
        x = self.node.inputs[0]
        length = None if x is None or x.shape is None else x.shape.dims[int(self.by_batch)]
        return length if isinstance(length, int) else None

    @property
    def batch(self) -> int | ir.SymbolicDim | None:
        """How many sequences there are, or what the model calls that."""
        x = self.node.inputs[0]
        return None if x is None or x.shape is None else x.shape.dims[int(not self.by_batch)]

    @property
    def is_unrolled(self) -> bool:
        """Whether every step gets nodes of its own: short sequences of known length do."""
        return self.steps is not None and 0 < self.steps <= _LONGEST_UNROLLED

    @property
    def hidden(self) -> int | None:
        """The length of a state, if that is known."""
        attribute = self.node.attributes.get("hidden_size")
        if attribute is not None:
            return attribute.as_int()
        recurrence = self.node.inputs[2]
        if recurrence is None or recurrence.shape is None:
            return None
        length = recurrence.shape.dims[2]
        return length if isinstance(length, int) else None

    @property
    def clip(self) -> float | None:
        """The largest magnitude of what activations read."""
        attribute = self.node.attributes.get("clip")
        return attribute.as_float() if attribute is not None and attribute.as_float() > 0 else None

    @cached_property
    def activations(self) -> tuple[Activation, ...]:
        """The activations of all directions, one direction after the other."""
        attributes = self.node.attributes
        names = attributes.get_strings("activations", _ACTIVATIONS[self.op] * len(self.directions))
        alphas = attributes.get_floats("activation_alpha", ())
        return activations(names, alphas, attributes.get_floats("activation_beta", ()))

    def activations_of(self, direction: int) -> tuple[Activation, ...]:
        """Return the activations of one direction."""
        count = len(_ACTIVATIONS[self.op])
        return self.activations[direction * count : (direction + 1) * count]

    def obstacle(self) -> str | None:
        """Return what keeps the node from being differentiated; None if nothing does."""
        if self.hidden is None:
            return "the hidden size is not static"
        wanted = len(_ACTIVATIONS[self.op]) * len(self.directions)
        if len(self.activations) != wanted:
            return f"it names {len(self.activations)} activations instead of {wanted}"
        obstacles = (activation.obstacle() for activation in self.activations)
        return next((reason for reason in obstacles if reason is not None), None)


# operators: of those that take no parameter.
_PLAIN = frozenset({"Relu", "Sigmoid", "Softplus", "Softsign", "Tanh"})
# operators: those with parameters -> alpha and beta where none are given; None has no default.
_PARAMETERS: dict[str, tuple[float | None, ...]] = {
    "Affine": (None, None),
    "Elu": (1.0,),
    "HardSigmoid": (0.2, 0.5),
    "LeakyRelu": (0.01,),
    "ScaledTanh": (None, None),
    "ThresholdedRelu": (1.0,),
}


@dataclass(frozen=True)
class Activation:
    """An activation with its parameters.

    Attributes:
        name: As the operator names it.
        parameters: Alpha and beta, as far as it takes them; None where one is missing.
    """

    name: str
    parameters: tuple[float | None, ...] = ()

    def obstacle(self) -> str | None:
        """Return why it cannot be computed; None if it can."""
        if self.name not in _PLAIN and self.name not in _PARAMETERS:
            return f"the activation {self.name} is unknown"
        if None in self.parameters:
            return f"the activation {self.name} lacks its activation_alpha or activation_beta"
        return None

    def apply(self, e: Emitter, x: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return the activation of x, which is of type `dtype`."""
        numbers = [number for number in self.parameters if number is not None]
        if self.name == "Affine":  # alpha x + beta
            alpha, beta = (e.constant(number, dtype) for number in numbers)
            return e.op("Add", e.op("Mul", alpha, x), beta)
        if self.name == "ScaledTanh":  # alpha tanh(beta x)
            alpha, beta = (e.constant(number, dtype) for number in numbers)
            return e.op("Mul", alpha, e.op("Tanh", e.op("Mul", beta, x)))
        named = dict(zip(("alpha", "beta"), numbers, strict=False))
        return e.op(self.name, x, **named)


def activations(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]
) -> tuple[Activation, ...]:
    """Return activations with their parameters.

    Args:
        names: The activations of all gates, one direction after the other.
        alphas: What those that take an alpha consume, in this order; the rest have defaults.
        betas: The same for beta.
    """
    left = iter(alphas), iter(betas)
    return tuple(Activation(name, tuple(_parameters(name, left))) for name in names)


def _parameters(name: str, left: Sequence[Iterator[float]]) -> Iterator[float | None]:
    for default, numbers in zip(_PARAMETERS.get(name, ()), left, strict=False):
        yield next(numbers, default)
