"""The state tensors of a step, twice: what a step reads, and where it writes the next ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import CheckpointError, OptionError, RunError, SaveError
from amp_rewrite.runtimes.ort.device import Device
from amp_rewrite.runtimes.ort.ort_values import (
    Array,
    empty,
    is_numpys,
    shared_array,
    to_array,
    to_ort_value,
    zeros_on_host,
)
from amp_rewrite.training.graph.training_graph import assigned
from amp_rewrite.training.optimizers.gradient_accumulation import COUNTER
from amp_rewrite.training.step.step_info import StateInfo, StepInfo

_LEAST = {"learning_rate": 0.0, "loss_scale": FLOAT32.smallest_normal}
"""Role of a state -> the least number that it may be given."""


class States:
    """Two sets of OrtValues by state name on one device; a step reads one and writes the other.

    `info` describes the states by name, and `current` is the set of the present values.
    """

    def __init__(
        self, states: Sequence[StateInfo], initial: Mapping[str, ir.TensorProtocol], device: Device
    ) -> None:
        """Allocate both sets on a device, and fill the first with the initial values.

        On the host, what begins as zeros takes no memory before the first step, as slots do.
        """
        self.info = {state.name: state for state in states}
        self._device = device
        self.current = 0
        self.sets: tuple[dict[str, Any], dict[str, Any]] = (self._allocated(), self._allocated())
        for name in self.info:
            array = initial[name].numpy()
            if not device.is_host or array.reshape(-1).view(np.uint8).any():
                self._write(name, array)

    def _allocated(self) -> dict[str, Any]:
        """Return a set of states, of zeros on the host and of any numbers elsewhere."""
        kinds = [(state.shape, state.element) for state in self.info.values()]
        host = self._device.is_host
        tensors = zeros_on_host(kinds) if host else [empty(*k, self._device) for k in kinds]
        return dict(zip(self.info, tensors, strict=True))

    def advance(self) -> None:
        """Make what the last step wrote the present values."""
        self.current = 1 - self.current

    def read(self, name: str) -> Array:
        """Return a copy of the present value of a state."""
        state = self._known(name)
        return to_array(self.sets[self.current][name], state.element)

    def read_all(self, *, other: bool = False) -> dict[str, Array]:
        """Return a copy of every state, by name; of the `other` set: what the last step read."""
        tensors = self.sets[1 - self.current if other else self.current]
        return {name: to_array(tensors[name], state.element) for name, state in self.info.items()}

    def write(self, name: str, value: Any) -> None:
        """Replace the present value of a state."""
        state = self._known(name)
        array = assigned(value, state.element.numpy(), state.shape, name)
        least = _LEAST.get(state.role)
        if least is not None and not (np.isfinite(array) & (array >= least)).all():
            expected = f"a finite number of at least {least:g}"
            raise OptionError(f"impossible {name}", found=repr(value), expected=expected)
        self._write(name, array)

    def release(self) -> None:
        """Forget the tensors."""
        self.sets = ({}, {})

    def _known(self, name: str) -> StateInfo:
        if not isinstance(name, str) or name not in self.info:  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise OptionError(
                "the step has no such state",
                found=repr(name),
                expected="one of " + ", ".join(self.info),
            )
        return self.info[name]

    def _write(self, name: str, array: Any) -> None:
        """Copy an array to the device."""
        target = self.sets[self.current][name]
        if self._device.is_host:
            shared_array(target)[...] = array
            return
        owned = np.array(array, self.info[name].element.numpy(), order="C")
        numpys = is_numpys(owned.dtype)  # bfloat16 is not
        target.update_inplace(owned if numpys else to_ort_value(owned, self._device))


class ClosedStates:
    """The single numbers of an optimizer's states after their session, as training left them.

    Larger tensors went with the session: their initial values would be mistaken for trained ones.
    """

    def __init__(self, numbers: Mapping[str, Array]) -> None:
        """Keep the last values, by the names of their states."""
        self._known = dict(numbers)

    def read_state(self, name: str) -> Array:
        """Return the last value of a state, or what was assigned since."""
        if name not in self._known:
            raise RunError(
                "the session that held the state is closed",
                where=name,
                remedy="read it before the session is closed, or save a checkpoint",
            )
        return self._known[name].copy()

    def assign_state(self, name: str, value: Array) -> None:
        """Keep a value that sessions to come begin with."""
        self._known[name] = value


class WaitingGradients:
    """Knows how many batches have added to an update that is still to come."""

    def __init__(self, info: StepInfo, states: States, *, shards: bool) -> None:
        """Keep where batches are counted; over `shards` each has its own sums until an update."""
        self.steps, self._states, self._shards = info.accumulate, states, shards
        counter = info.having(COUNTER)
        self._counter = None if counter is None else counter.name

    @property
    def batches(self) -> int:
        """How many batches wait."""
        return 0 if self._counter is None else int(self._states.read(self._counter))

    def next_run(self, *, now: bool) -> tuple[bool | None, int]:
        """Return whether the next run applies gradients, and of how many batches an update is.

        None leaves the first to the step, which counts itself; shards have to know, for they sum
        gradients only then. `now` applies them though more batches were to come.
        """
        if self._counter is None or not (now or self._shards):
            return None, self.steps
        batches = self.batches + 1
        if batches >= self.steps:
            return True if self._shards else None, self.steps
        return (True, batches) if now else (False, self.steps)

    def check_save(self) -> None:
        """Refuse to save sums that differ from shard to shard."""
        if self._shards and (waiting := self.batches):
            raise SaveError(
                "every shard has gradients of its own that wait for an update",
                found=f"{waiting} of {self.steps} batches",
                remedy="save when `session.waiting` is 0; run(feeds, apply=True) makes it so",
            )

    def check_restored(self, tensors: Mapping[str, Any]) -> None:
        """Refuse sums of one process for several shards, each of which would add all of them."""
        if self._shards and (waiting := int(tensors.get(str(self._counter), 0))):
            raise CheckpointError(
                "gradients wait for an update, which shards cannot take over",
                found=f"{waiting} of {self.steps} batches",
                remedy="restore a checkpoint that was saved when `session.waiting` was 0",
            )
