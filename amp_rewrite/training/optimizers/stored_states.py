"""How a step reads and writes variables, which may be stored in a low type, and slots."""

from __future__ import annotations

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
class StoredState:
    """A state in one step.

    One that is compensated is stored in two parts, of which the number is the sum:
    next = round(result), lost = round(result - next).

    Attributes:
        b: Adds the nodes.
        state: The state.
        dtype: What updates are computed in.
        random: Returns random numbers from 0 to 1 in the shape of a tensor, by which `stochastic`
            rounds to one of both neighbours; None rounds to the nearest number.
        lost: The state of what rounding has lost, of the same type; None forgets it.
    """

    b: Builder
    state: State
    dtype: ir.DataType
    random: Callable[[ir.Value], ir.Value] | None = None
    lost: State | None = None

    def read(self, rows: ir.Value | None = None) -> ir.Value:
        """Return the present number, or that of some rows, in `dtype`."""
        stored = [s.value for s in (self.state, self.lost) if s is not None]
        if rows is not None:
            stored = [self.b.gather(value, rows) for value in stored]
        wide = [self.b.cast(value, self.dtype) for value in stored]
        return wide[0] if self.lost is None else self.b.add(*wide)

    def written(self, result: ir.Value, rows: ir.Value | None = None) -> dict[str, ir.Value]:
        """Return state name -> next value, for a next number in `dtype`, or that of some rows."""
        b, dtype = self.b, self.state.dtype
        low = b.cast(result, dtype)
        if self.random is not None:
            low = stochastic(b, result, dtype, self.random(result))
        following = {self.state: low}
        if self.lost is not None:
            following[self.lost] = b.cast(b.sub(result, b.cast(low, self.dtype)), dtype)
        return {state.name: self._whole(state, x, rows) for state, x in following.items()}

    def _whole(self, state: State, stored: ir.Value, rows: ir.Value | None) -> ir.Value:
        """Return the next value of a state, of which only some rows may change."""
        if rows is not None:
            stored = self.b.op("ScatterND", state.value, self.b.unsqueeze(rows, [1]), stored)
        return self.b.shaped_like(stored, state.value)


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
            return StoredState(self._b, variable, dtype, random=self._random(variable))
        if rounding == COMPENSATED:
            lost = self._states.add_slot(variable, COMPENSATION, 0.0, variable.dtype)
            return StoredState(self._b, variable, dtype, lost=lost)
        return StoredState(self._b, variable, dtype)

    def slot(self, variable: State, name: str, initial: float, dtype: ir.DataType) -> StoredState:
        """Return a slot of a variable, which is made if there is none; its type is `dtype`."""
        return StoredState(self._b, self._states.add_slot(variable, name, initial), dtype)

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
