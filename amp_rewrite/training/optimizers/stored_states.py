"""How a step reads and writes variables, which may be stored in a low type, and slots."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

import onnx_ir as ir

from amp_rewrite import dtypes
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.builder.random_numbers import MODULUS, RandomNumbers, first
from amp_rewrite.training.graph.training_graph import State
from amp_rewrite.training.optimizers.slots import OptimizerStates

NEAREST, STOCHASTIC, COMPENSATED = "nearest", "stochastic", "compensated"
ROUNDINGS = (NEAREST, STOCHASTIC, COMPENSATED)
"""How variables in float16 and bfloat16 are rounded.

"nearest" loses an update that is smaller than half of the gap between two such numbers.
"stochastic" takes one of both neighbours, with the exact result as expected value. "compensated"
keeps what was lost in a slot of the same type and adds it in the next step (W. Kahan, 1965).
"""
COMPENSATION = "compensation"
"""The slot of what rounding has lost of a variable."""


@dataclass(frozen=True)
class StoredState(ABC):
    """A state in one step.

    Attributes:
        b: Adds the nodes.
        state: The state.
        dtype: What updates are computed in.
    """

    b: Builder
    state: State
    dtype: ir.DataType

    def read(self) -> ir.Value:
        """Return the present number, in `dtype`."""
        return self.b.cast(self.state.value, self.dtype)

    def rows_read(self, rows: ir.Value) -> ir.Value:
        """Return the present number of some rows."""
        return self.b.gather(self.read(), rows)

    @abstractmethod
    def written(self, result: ir.Value) -> dict[str, ir.Value]:
        """Return state name -> next value, for a next number in `dtype`."""

    def rows_written(self, result: ir.Value, rows: ir.Value) -> dict[str, ir.Value]:
        """Return the same where only some rows have a next number."""
        return self.written(self._scattered(self.read(), result, rows))

    def _scattered(self, whole: ir.Value, result: ir.Value, rows: ir.Value) -> ir.Value:
        scattered = self.b.op("ScatterND", whole, self.b.unsqueeze(rows, [1]), result)
        return self.b.shaped_like(scattered, self.state.value)


@dataclass(frozen=True)
class NearestState(StoredState):
    """A state that is rounded to the nearest number of its type, if it is a lower one."""

    def rows_read(self, rows: ir.Value) -> ir.Value:
        """Return the present number of some rows; others are not even read."""
        return self.b.cast(self.b.gather(self.state.value, rows), self.dtype)

    def written(self, result: ir.Value) -> dict[str, ir.Value]:
        """Return the next value."""
        return {self.state.name: self.b.shaped_like(self._rounded(result), self.state.value)}

    def rows_written(self, result: ir.Value, rows: ir.Value) -> dict[str, ir.Value]:
        """Return the next value; other rows are not rounded."""
        following = self._scattered(self.state.value, self._rounded(result), rows)
        return {self.state.name: following}

    def _rounded(self, result: ir.Value) -> ir.Value:
        return self.b.cast(result, self.state.dtype)


@dataclass(frozen=True)
class StochasticState(NearestState):
    """A state that is rounded to one of both neighbours; see `stochastic`.

    Attributes:
        random: Returns random numbers from 0 to 1 in the shape of a tensor.
    """

    random: Callable[[ir.Value], ir.Value]

    def _rounded(self, result: ir.Value) -> ir.Value:
        return stochastic(self.b, result, self.state.dtype, self.random(result))


@dataclass(frozen=True)
class CompensatedState(StoredState):
    """A state beside which stands what rounding has lost.

        next = round(result), lost = round(result - next); the number is their sum

    Attributes:
        lost: The state of what was lost, of the same type.
    """

    lost: State

    def read(self) -> ir.Value:
        """Return the present number."""
        return self.b.add(super().read(), self.b.cast(self.lost.value, self.dtype))

    def written(self, result: ir.Value) -> dict[str, ir.Value]:
        """Return the next value, and what is lost."""
        b, state = self.b, self.state
        low = b.cast(result, state.dtype)
        rest = b.cast(b.sub(result, b.cast(low, self.dtype)), state.dtype)
        return {
            state.name: b.shaped_like(low, state.value),
            self.lost.name: b.shaped_like(rest, state.value),
        }


class StoredStates:
    """The states of one optimizer in one step."""

    def __init__(
        self, b: Builder, states: OptimizerStates, rounding: str, counter: ir.Value
    ) -> None:
        """Begin with no state; `states` gets the slots, and random numbers depend on `counter`."""
        self._b, self._states, self._rounding = b, states, rounding
        self._counter = counter
        self._numbers: RandomNumbers | None = None

    def variable(self, variable: State, dtype: ir.DataType) -> StoredState:
        """Return a variable as the step reads and writes it."""
        rounding = self._rounding if variable.dtype.itemsize == 2 else NEAREST
        if rounding == STOCHASTIC:
            return StochasticState(self._b, variable, dtype, self._random(variable))
        if rounding == COMPENSATED:
            lost = self._states.add_slot(variable, COMPENSATION, 0.0, variable.dtype)
            return CompensatedState(self._b, variable, dtype, lost)
        return NearestState(self._b, variable, dtype)

    def slot(self, variable: State, name: str, initial: float, dtype: ir.DataType) -> StoredState:
        """Return a slot of a variable, which is made if there is none; its type is `dtype`."""
        return NearestState(self._b, self._states.add_slot(variable, name, initial), dtype)

    def _random(self, state: State) -> Callable[[ir.Value], ir.Value]:
        """Return a source of random numbers, which are others for each state and step."""
        if self._numbers is None:
            count = self._b.cast(self._counter, ir.DataType.INT64)
            self._numbers = RandomNumbers(self._b, count)
        numbers, site = self._numbers, crc32(state.name.encode())
        return lambda like: uniform(self._b, numbers, site, like)


_BETWEEN = 0.6
"""Times epsilon and a low number: more than half of the gap behind it, less than 1.5 of it."""


def stochastic(b: Builder, x: ir.Value, dtype: ir.DataType, random: ir.Value) -> ir.Value:
    """Return float32 numbers in a low type, as one of both neighbours, with x as expected value.

    The nearest low number n is the one neighbour. The other one, behind x, is what n plus 0.6
    epsilon n rounds to: the gap is between 0.5 and 1 epsilon n. It is taken with the probability
    (x - n) / (neighbour - n). What is not finite stays so, and nothing rounds to an infinity that
    is nearer to a finite number.

    S. Gupta et al., "Deep Learning with Limited Numerical Precision", 2015,
    https://arxiv.org/abs/1502.02551. Random numbers, in the shape of x, are from 0 to 1.
    """
    facts = dtypes.of(dtype)
    assert facts is not None, "a low type"
    nearest = b.cast(b.cast(x, dtype), ir.DataType.FLOAT)
    rest = b.sub(x, nearest)
    gap = b.maximum(b.mul(b.abs(nearest), facts.epsilon), facts.smallest_subnormal)
    behind = b.add(nearest, b.mul(b.sign(rest), b.mul(gap, _BETWEEN)))
    neighbour = b.cast(b.cast(behind, dtype), ir.DataType.FLOAT)
    share = b.div(rest, b.sub(neighbour, nearest))  # 0 / 0 where x is a low number: not taken
    return b.cast(b.where(b.less(random, share), neighbour, nearest), dtype)


def uniform(b: Builder, numbers: RandomNumbers, site: int, like: ir.Value) -> ir.Value:
    """Return random numbers from 0 to 1 in the shape of a tensor: float32."""
    size = b.size(like)
    whole = first(b, numbers.rows(site, size), size, b.shape(like))
    return b.add(b.mul(b.cast(whole, ir.DataType.FLOAT), 1 / MODULUS), 0.5)
