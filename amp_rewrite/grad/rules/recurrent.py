"""LSTM, GRU and RNN as plain operators: unrolled, or a Loop over the steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.rule import Gradients, Rules
from amp_rewrite.grad.rules.arithmetic import Received
from amp_rewrite.graph.names import place

# operators: the activations that each has by default.
_ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "RNN": ("Tanh",),
}
_GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}  # operators: by definition

_INPUTS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_LONGEST_UNROLLED = 64


def spell_recurrent(model: ir.Model) -> bool:
    """Put plain operators in the place of recurrent ones, in place; return whether there were any.

    Those that cannot be spelled stay; their rule says why.
    """
    nodes = [n for n in model.graph.all_nodes() if n.op_type in _GATES and not n.domain]
    described = [d for d in map(_Description, nodes) if d.obstacle() is None]
    for description in described:
        node = description.node
        b = Builder(model, scope=node.name or node.op_type).child(ir.Graph([], [], nodes=()))
        b.replace(node, _Spelling(b, description).outputs())
    return bool(described)


def refused(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """No formula: a node that can be spelled was, before the walk.

    Raises:
        GradientError: Always.
    """
    raise GradientError(
        "a recurrent operator cannot be differentiated",
        where=place(node),
        found=_Description(node).obstacle(),
        remedy="give it its hidden_size, and use the activations of the standard, with both "
        "activation_alpha and activation_beta for Affine and ScaledTanh",
    )


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
class _Activation:
    """An activation with alpha and beta, as far as it takes them; None where one is missing."""

    name: str
    parameters: tuple[float | None, ...] = ()

    def obstacle(self) -> str | None:
        """Return why it cannot be computed; None if it can."""
        if self.name not in _PLAIN and self.name not in _PARAMETERS:
            return f"the activation {self.name} is unknown"
        if None in self.parameters:
            return f"the activation {self.name} lacks its activation_alpha or activation_beta"
        return None

    def apply(self, b: Builder, x: ir.Value) -> ir.Value:
        """Return the activation of x."""
        numbers = [number for number in self.parameters if number is not None]
        if self.name == "Affine":  # alpha x + beta
            return b.add(b.mul(numbers[0], x), numbers[1])
        if self.name == "ScaledTanh":  # alpha tanh(beta x)
            return b.mul(numbers[0], b.tanh(b.mul(numbers[1], x)))
        return b.op(self.name, x, **dict(zip(("alpha", "beta"), numbers, strict=False)))


def _parameters(name: str, left: Sequence[Iterator[float]]) -> Iterator[float | None]:
    """Yield the parameters of an activation: the next ones given, or its defaults."""
    for default, numbers in zip(_PARAMETERS.get(name, ()), left, strict=False):
        yield next(numbers, default)


class _Description:
    """A recurrent node's attributes, and what the shapes of its inputs tell."""

    def __init__(self, node: ir.Node) -> None:
        """Read the node."""
        attributes = node.attributes
        x, recurrence = node.inputs[0], node.inputs[2]
        self.node, self.op = node, node.op_type
        self.states = ("initial_h", "initial_c") if self.op == "LSTM" else ("initial_h",)
        self.by_batch = bool(attributes.get_int("layout", 0))  # the first axis of X, Y, states
        self.backwards = _DIRECTIONS[attributes.get_string("direction", "forward")]
        self.dtype = (None if x is None else x.dtype) or ir.DataType.FLOAT
        first, second = (None, None) if x is None or x.shape is None else x.shape.dims[:2]
        steps, self.batch = (second, first) if self.by_batch else (first, second)
        self.steps = steps if isinstance(steps, int) else None
        self.is_unrolled = self.steps is not None and 0 < self.steps <= _LONGEST_UNROLLED
        found = None if recurrence is None or recurrence.shape is None else recurrence.shape.dims[2]
        given = attributes.get("hidden_size")
        self.hidden = found if isinstance(found, int) else None
        if given is not None:
            self.hidden = given.as_int()
        self.clip = attributes.get_float("clip", 0.0)  # the largest magnitude that is activated
        names = attributes.get_strings("activations", _ACTIVATIONS[self.op] * len(self.backwards))
        left = [iter(attributes.get_floats(f"activation_{part}", ())) for part in ("alpha", "beta")]
        self.activations = [_Activation(name, tuple(_parameters(name, left))) for name in names]

    def obstacle(self) -> str | None:
        """Return what keeps the node from being differentiated; None if nothing does."""
        if self.hidden is None:
            return "the hidden size is not static"
        wanted = len(_ACTIVATIONS[self.op]) * len(self.backwards)
        if len(self.activations) != wanted:
            return f"it names {len(self.activations)} activations instead of {wanted}"
        obstacles = (activation.obstacle() for activation in self.activations)
        return next((reason for reason in obstacles if reason is not None), None)


def _parts(b: Builder, x: ir.Value, axis: int, parts: int, length: int) -> Sequence[ir.Value]:
    """Return equal parts of x along an axis."""
    return [x] if parts == 1 else b.split(x, [length] * parts, axis, parts)


def _stacked(b: Builder, values: Sequence[ir.Value], axis: int) -> ir.Value:
    """Return values along a new axis."""
    return b.concat([b.unsqueeze(v, [axis]) for v in values], axis)


class _Spelling:
    """The operators of one node; X is brought to (T, N, I) first."""

    def __init__(self, b: Builder, node: _Description) -> None:
        """Take the inputs of the node, which may lack all but X, W and R."""
        self._b, self._node, self._hidden = b, node, node.hidden or 0
        named = zip(_INPUTS, node.node.inputs, strict=False)
        self._given = {name: value for name, value in named if value is not None}
        x = self._given["X"]
        self._x = b.transpose(x, [1, 0, 2]) if node.by_batch else x
        self._length = b.squeeze(b.dim(self._x, 0), [0])
        lengths = self._given.get("sequence_lens")
        self._lengths = (  # (N, 1)
            None if lengths is None else b.unsqueeze(b.cast(lengths, ir.DataType.INT64), [1])
        )

    def outputs(self) -> list[ir.Value]:
        """Return Y, Y_h and, of an LSTM, Y_c."""
        b, by_batch = self._b, self._node.by_batch
        runs = [self._run(k, backwards) for k, backwards in enumerate(self._node.backwards)]
        whole = _stacked(b, [shown for shown, _ in runs], 1)  # (T, directions, N, H)
        if by_batch:
            whole = b.transpose(whole, [2, 0, 1, 3])
        lasts = zip(*(states for _, states in runs), strict=True)
        return [whole, *(_stacked(b, states, int(by_batch)) for states in lasts)]

    def _run(self, direction: int, backwards: bool) -> tuple[ir.Value, list[ir.Value]]:
        """Return one direction's output of all steps (T, N, H), and its last states (N, H)."""
        weights = {name: self._of(direction, name, 0) for name in ("W", "R", "B", "P")}
        cell = _Cell(self._b, self._node, direction, weights)
        projected = cell.projected(self._x)
        firsts = [self._first(direction, name) for name in self._node.states]
        run = self._unrolled if self._node.is_unrolled else self._looped
        shown, states = run(cell, projected, firsts, backwards)
        return shown, [self._last(state) for state in states]

    def _unrolled(
        self, cell: _Cell, projected: ir.Value, states: list[ir.Value], backwards: bool
    ) -> tuple[ir.Value, list[ir.Value]]:
        """Return what `_run` does: each step has nodes of its own."""
        b, steps = self._b, self._node.steps or 0
        parts = _parts(b, projected, 0, steps, 1)
        shown: dict[int, ir.Value] = {}
        for t in reversed(range(steps)) if backwards else range(steps):
            here = b.squeeze(parts[t], [0])
            shown[t], states = self._step(b, cell, here, states, b.constant(t))
        return _stacked(b, [shown[t] for t in range(steps)], 0), states

    def _looped(
        self, cell: _Cell, projected: ir.Value, states: list[ir.Value], backwards: bool
    ) -> tuple[ir.Value, list[ir.Value]]:
        """Return what `_run` does: a Loop with a turn for each step."""
        b, inner = self._b, self._b.child(ir.Graph([], [], nodes=()))
        inner.graph.name = b.free_name(f"{self._node.op}/body")
        turn, goes_on = b.value("turn", ir.DataType.INT64), b.value("goes_on", ir.DataType.BOOL)
        dtype, shape = self._node.dtype, (self._node.batch, self._hidden)
        before = [b.value("state", dtype, shape) for _ in states]
        t = inner.sub(b.sub(self._length, 1), turn) if backwards else turn
        here = inner.gather(projected, t)
        shown, after = self._step(inner, cell, here, before, t)
        inner.graph.inputs.extend([turn, goes_on, *before])
        # An output of a body is computed in it, and is one output only.
        ends = [inner.op("Identity", value) for value in (goes_on, *after, shown)]
        inner.graph.outputs.extend(ends)
        *states, shown = b.op(
            "Loop", self._length, None, *states, outputs=len(ends) - 1, body=inner.graph
        )
        for state in states:  # inference does not tell, since a Loop may change shapes
            state.type, state.shape = ir.TensorType(dtype), ir.Shape(shape)
        shown.type = ir.TensorType(dtype)
        if backwards:
            shown = b.slice(shown, [-1], [int(np.iinfo(np.int64).min)], [0], [-1])
        # A Loop without turns knows T and H alone. A 0 in the shape copies a length, 0 then.
        lengths = [b.dim(self._x, 0), b.dim(self._x, 1), b.constant([self._hidden])]
        return b.reshape(shown, b.concat(lengths, 0)), states

    def _step(
        self, b: Builder, cell: _Cell, x: ir.Value, states: Sequence[ir.Value], t: ir.Value
    ) -> tuple[ir.Value, list[ir.Value]]:
        """Return what step t shows, and the states after it, with sequences that end before t."""
        after = cell.step(b, x, states)
        if self._lengths is None:
            return after[0], after
        valid = b.greater(self._lengths, t)
        kept = [b.where(valid, new, old) for new, old in zip(after, states, strict=True)]
        return b.where(valid, after[0], 0), kept

    def _last(self, state: ir.Value) -> ir.Value:
        """Return a last state: zeros for a sequence of length 0, as the kernels give it."""
        if self._lengths is None and self._node.is_unrolled:
            return state
        lengths = self._length if self._lengths is None else self._lengths
        return self._b.where(self._b.greater(lengths, 0), state, 0)

    def _of(self, direction: int, name: str, axis: int) -> ir.Value | None:
        """Return an input's part for one direction, without the axis of directions."""
        value = self._given.get(name)
        if value is None:
            return None
        parts = _parts(self._b, value, axis, len(self._node.backwards), 1)
        return self._b.squeeze(parts[direction], [axis])

    def _first(self, direction: int, name: str) -> ir.Value:
        """Return an initial state (N, H), zeros where the node gives none."""
        b, state = self._b, self._of(direction, name, int(self._node.by_batch))
        if state is not None:
            return state
        shape = b.concat([b.dim(self._x, 1), b.constant([self._hidden])], 0)
        return b.zeros(shape, self._node.dtype)


class _Cell:
    """One direction's weights, and a step with them."""

    def __init__(
        self, b: Builder, node: _Description, direction: int, weights: dict[str, Any]
    ) -> None:
        """Split the weights of a direction, W, R, B and P without that axis or None, by gate."""
        self._b, self._node, self._hidden = b, node, node.hidden or 0
        count = len(_ACTIVATIONS[node.op])
        self._activations = node.activations[direction * count : (direction + 1) * count]
        self._w, self._r, self._bias = weights["W"], weights["R"], weights["B"]
        peepholes = weights["P"]
        self._peepholes = None if peepholes is None else _parts(b, peepholes, 0, 3, self._hidden)
        self._reset_after = bool(node.node.attributes.get_int("linear_before_reset", 0))
        self._input_forget = bool(node.node.attributes.get_int("input_forget", 0))
        self._recurrent_bias: ir.Value | None = None
        if node.op == "GRU":
            # The gates z and r, and the candidate h, meet the state apart from each other.
            self._r_zr, self._r_h = self._of_gates(b, self._r, 0)

    def _of_gates(self, b: Builder, x: ir.Value, axis: int) -> tuple[ir.Value, ...]:
        """Return the parts of a GRU's gates z and r, and of its candidate."""
        return b.split(x, [2 * self._hidden, self._hidden], axis, 2)

    def projected(self, x: ir.Value) -> ir.Value:
        """Return x W^T + the biases that can be added to it, for all steps: (T, N, gates H)."""
        b, product = self._b, self._b.matmul(x, self._b.transpose(self._w, [1, 0]))
        if self._bias is None:
            return product
        by_x, by_state = _parts(b, self._bias, 0, 2, _GATES[self._node.op] * self._hidden)
        if self._node.op == "GRU" and self._reset_after:
            # The candidate's own bias is inside what the reset gate multiplies.
            by_gates, self._recurrent_bias = self._of_gates(b, by_state, 0)
            none = b.sub(self._recurrent_bias, self._recurrent_bias)
            by_state = b.concat([by_gates, none], 0)
        return b.add(product, b.add(by_x, by_state))

    def step(self, b: Builder, x: ir.Value, states: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the states (N, H) after a step; x is its part of `projected`: (N, gates H)."""
        return _STEPS[self._node.op](self, b, x, states)

    def _activate(self, b: Builder, which: int, x: ir.Value) -> ir.Value:
        limit = self._node.clip
        if limit > 0:
            x = b.op("Clip", x, b.operand(-limit, x), b.operand(limit, x))
        return self._activations[which].apply(b, x)

    def rnn(self, b: Builder, x: ir.Value, states: Sequence[ir.Value]) -> list[ir.Value]:
        """H = f(x + H R^T)."""
        return [self._activate(b, 0, b.op("Gemm", states[0], self._r, x, transB=1))]

    def gru(self, b: Builder, x: ir.Value, states: Sequence[ir.Value]) -> list[ir.Value]:
        """H = (1 - z) h + z H; h = g(x + (r H) R^T), or g(x + r (H R^T + b))."""
        (state,) = states
        x_zr, x_h = self._of_gates(b, x, 1)
        gates = b.op("Gemm", state, self._r_zr, x_zr, transB=1)
        z, r = (self._activate(b, 0, gate) for gate in _parts(b, gates, 1, 2, self._hidden))
        if self._reset_after:
            bias = [] if self._recurrent_bias is None else [self._recurrent_bias]
            inner = b.op("Gemm", state, self._r_h, *bias, transB=1)
            candidate = b.add(x_h, b.mul(r, inner))
        else:
            candidate = b.op("Gemm", b.mul(r, state), self._r_h, x_h, transB=1)
        candidate = self._activate(b, 1, candidate)
        # (1 - z) h + z H = h + z (H - h)
        return [b.add(candidate, b.mul(z, b.sub(state, candidate)))]

    def lstm(self, b: Builder, x: ir.Value, states: Sequence[ir.Value]) -> list[ir.Value]:
        """C = f C + i g(c), H = o h(C); gates in the order i, o, f, c; peepholes see C."""
        state, memory = states
        gates = b.op("Gemm", state, self._r, x, transB=1)
        i, o, f, c = _parts(b, gates, 1, 4, self._hidden)
        i = self._activate(b, 0, self._peeped(b, i, 0, memory))
        if self._input_forget:
            kept = b.sub(memory, b.mul(i, memory))
        else:
            kept = b.mul(self._activate(b, 0, self._peeped(b, f, 2, memory)), memory)
        memory = b.add(kept, b.mul(i, self._activate(b, 1, c)))
        o = self._activate(b, 0, self._peeped(b, o, 1, memory))
        return [b.mul(o, self._activations[2].apply(b, memory)), memory]

    def _peeped(self, b: Builder, gate: ir.Value, which: int, memory: ir.Value) -> ir.Value:
        if self._peepholes is None:
            return gate
        return b.add(gate, b.mul(self._peepholes[which], memory))


_Step = Callable[[_Cell, Builder, ir.Value, Sequence[ir.Value]], list[ir.Value]]
_STEPS: dict[str, _Step] = {"GRU": _Cell.gru, "LSTM": _Cell.lstm, "RNN": _Cell.rnn}
RULES: Rules = dict.fromkeys(sorted(_GATES), refused)
