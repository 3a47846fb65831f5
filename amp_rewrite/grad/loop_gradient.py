"""The gradient of Loop: a Loop over the same turns, the last one first."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import GradientError
from amp_rewrite.grad.backward_loop import (
    BackwardLoop,
    Carried,
    Stacked,
    history,
    repeated,
    settled,
)
from amp_rewrite.grad.builder.annotate import annotate
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import differ, dims, is_vague
from amp_rewrite.grad.rule import Gradient, IndexedSlices
from amp_rewrite.graph.names import place

STATES_IN = 2
"""The first state among the inputs of a Loop and of its body."""
STATES_OUT = 1
"""The first state among the outputs of the body."""

ValueGradient = tuple[ir.Value, Gradient]


def loop_gradients(
    b: Builder, node: ir.Node, received: Sequence[ir.Value | None], wanted: Sequence[ir.Value]
) -> list[ValueGradient]:
    """Return the gradients of a Loop's initial states and of the outer values that it uses.

    With turns s[t+1], y[t] = f(s[t], w) for t = 0 .. n-1: a Loop over t = n-1 .. 0 that carries ds
    and dw, in which ds, dw' = f'(s[t], w)^T (ds, dy[t]) and dw = dw + dw'. Its body computes f
    again from s[t], for which the forward Loop gets outputs.

    Raises:
        GradientError: The body has an operator without a rule or draws random numbers, or a state
            is not a tensor or changes its shape.
    """
    return _LoopGradient(b, node, wanted).run(received)


class _LoopGradient:
    """The gradient of one Loop."""

    def __init__(self, b: Builder, node: ir.Node, wanted: Sequence[ir.Value]) -> None:
        """Copy the body, whose inputs stand for those of a forward turn until the end."""
        self._b, self._node, self._wanted = b, node, wanted
        self._initial = node.inputs[STATES_IN:]
        self._varying = _varying_states(b, node, wanted)
        body = repeated(b, node.attributes["body"].as_graph())
        self._before, self._after = body.inputs[STATES_IN:], body.outputs[STATES_OUT:]
        self._settle_shapes(body)
        self._loop = BackwardLoop(b, body)

    def run(self, received: Sequence[ir.Value | None]) -> list[ValueGradient]:
        """Return the gradient of each initial state that varies, and of each wanted value."""
        # Here, since the walk asks this module for the gradient of a Loop.
        from amp_rewrite.grad.walk import gradients

        states = [self._loop.carry(self._first(received, k), f"state{k}") for k in self._varying]
        seeds = self._seeds(received, states)
        wrt = [*(self._before[k] for k in self._varying), *self._wanted]
        arriving = gradients(self._loop.inner, seeds, wrt, stops=self._b.stops)
        for state, before, gradient in zip(states, wrt, arriving, strict=False):
            dense = gradient if isinstance(gradient, ir.Value) else None
            state.after = self._loop.inner.zeros_like(before) if dense is None else dense
        outer = [
            OuterGradient(self._b, self._loop, value, gradient)
            for value, gradient in zip(self._wanted, arriving[len(states) :], strict=True)
            if gradient is not None
        ]
        self._finish()
        passed: list[ValueGradient] = []
        for k, state in zip(self._varying, states, strict=True):
            initial = settled(self._initial[k])
            if initial in self._b.varying:
                passed.append((initial, settled(state.last)))
        return [*passed, *((part.value, part.result()) for part in outer)]

    def _settle_shapes(self, body: ir.Graph) -> None:
        """Take the states to keep the shapes of their initial values, and check that they do."""
        learnt = False
        for state, initial in zip(self._before, self._initial, strict=True):
            if initial is not None and initial.shape is not None and state.shape is None:
                state.type, state.shape = initial.type, ir.Shape(initial.shape.dims)
                learnt = True
        for node in body if learnt else ():
            with contextlib.suppress(GradientError):
                annotate(node, self._b.model.graph.opset_imports)
        for k in self._varying:
            before, after = dims(self._before[k]), dims(self._after[k])
            if before is not None and after is not None and differ(before, after):
                raise GradientError(
                    "a state that a loop carries changes its shape",
                    where=place(self._node),
                    found=f"{self._before[k].name!r}: {before} before a turn, {after} after it",
                    remedy="give it its full shape from the start",
                )

    def _first(self, received: Sequence[ir.Value | None], k: int) -> ir.Value:
        """Return the gradient of a state after the last forward turn."""
        gradient = received[k] if k < len(received) else None
        return self._b.zeros_like(settled(self._initial[k])) if gradient is None else gradient

    def _seeds(
        self, received: Sequence[ir.Value | None], states: Sequence[Carried]
    ) -> dict[ir.Value, ir.Value]:
        """Return the gradients that arrive at the outputs of a turn."""
        arriving = [
            (self._after[k], state.before) for k, state in zip(self._varying, states, strict=True)
        ]
        count = len(self._initial)
        for value, gradient in zip(self._after[count:], received[count:], strict=False):
            if gradient is not None:
                arriving.append((value, self._loop.slice(gradient, value)))
        seeds: dict[ir.Value, ir.Value] = {}
        for value, gradient in arriving:
            sum_before = seeds.get(value)
            seeds[value] = (
                gradient if sum_before is None else self._loop.inner.add(sum_before, gradient)
            )
        return seeds

    def _finish(self) -> None:
        """Add the backward Loop, to which the forward one gives out what it needs."""
        b, loop = self._b, self._loop
        loop.end_body()
        for index, state in enumerate(self._before, STATES_IN):
            if state.uses():
                whole = history(b, self._node, index, state)
                ir.convenience.replace_all_uses_with(state, loop.slice(whole, state))
        loop.finish(history(b, self._node, 0, loop.turn))


def _varying_states(b: Builder, node: ir.Node, wanted: Sequence[ir.Value]) -> list[int]:
    """Return which states depend, in some turn, on what is being differentiated with respect to."""
    # Here, since the walk asks this module for the gradient of a Loop.
    from amp_rewrite.grad.walk import depending_on

    body = node.attributes["body"].as_graph()
    initial, before = node.inputs[STATES_IN:], body.inputs[STATES_IN:]
    after = body.outputs[STATES_OUT : STATES_OUT + len(initial)]
    varying = {k for k, value in enumerate(initial) if value in b.varying}
    while True:
        reached = depending_on(body, [*wanted, *(before[k] for k in varying)])
        more = {k for k, value in enumerate(after) if value in reached} - varying
        if not more:
            return sorted(varying)
        varying |= more


@dataclass(frozen=True)
class _Rows:
    """The rows of a table that turns have gathered, and their indices."""

    values: Stacked
    indices: Stacked


@dataclass(frozen=True)
class _Product:
    """The factors of alpha A^T B, of which the sum over the turns is one product of all rows."""

    a: Stacked
    b: Stacked
    alpha: float


class OuterGradient:
    """The gradient of an outer value: the sum of the gradients of the turns.

    Rows that turns gather, and factors of a product, are stacked by the loop and put together
    once. Other gradients are added up from turn to turn, in float32 or wider.
    """

    def __init__(self, b: Builder, loop: BackwardLoop, value: ir.Value, gradient: Gradient) -> None:
        """Take the gradient of one turn into the loop."""
        self._b, self.value = b, value
        self._found: _Rows | _Product | Carried
        if isinstance(gradient, IndexedSlices):
            self._found = _Rows(loop.stack(gradient.values), loop.stack(gradient.indices))
        elif (product := _product(gradient)) is not None:
            alpha = product.attributes.get_float("alpha", 1.0)
            one, other = (loop.stack(settled(factor)) for factor in product.inputs)
            self._found = _Product(one, other, alpha)
        else:
            dtype = b.type_of(value)
            wide = FLOAT32.ir if dtype.itemsize < FLOAT32.ir.itemsize else dtype
            zeros = b.shaped_like(b.zeros(b.shape(value), wide), value)
            self._found = loop.add_up(zeros, gradient, f"{value.name}/gradient")

    def result(self) -> Gradient:
        """Return the gradient, once the loop is finished."""
        source = self._found
        if isinstance(source, Carried):
            return settled(source.last)
        if isinstance(source, _Rows):
            return self._rows(settled(source.values.whole), settled(source.indices.whole))
        b = self._b
        rows = [b.op("Flatten", settled(part.whole), axis=2) for part in (source.a, source.b)]
        product = b.op("Gemm", *rows, transA=1, alpha=source.alpha)
        return b.shaped_like(product, self.value)

    def _rows(self, values: ir.Value, indices: ir.Value) -> IndexedSlices:
        b, shape = self._b, self._b.shape(self.value)
        row = b.slice(shape, [1], [int(np.iinfo(np.int64).max)])
        lengths = b.concat([b.unsqueeze(b.op("Size", indices), [0]), row], 0)
        rows = b.reshape_exactly(values, lengths)
        return IndexedSlices(rows, b.reshape(indices, [-1]), shape)


def _product(gradient: ir.Value) -> ir.Node | None:
    """Return the Gemm that computes a gradient as A^T B, if A and B have rows of known length.

    A loop without turns gives no lengths.
    """
    node = gradient.producer()
    if node is None or node.op_type != "Gemm" or len(node.inputs) != 2:
        return None
    attributes = node.attributes
    if not attributes.get_int("transA", 0) or attributes.get_int("transB", 0):
        return None
    return node if all(_has_known_rows(v) for v in node.inputs) else None


def _has_known_rows(value: ir.Value | None) -> bool:
    if value is None or value.shape is None or is_vague(value.shape):
        return False
    return isinstance(value.shape.dims[-1], int)
