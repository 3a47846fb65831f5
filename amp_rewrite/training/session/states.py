"""The state tensors of a step, twice: what a step reads, and where it writes the next ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import OptionError
from amp_rewrite.graph import elements
from amp_rewrite.runtimes.ort.device import Device
from amp_rewrite.runtimes.ort.ort_values import Array, empty, is_numpys, to_array, to_ort_value
from amp_rewrite.training.graph.assigned import assigned
from amp_rewrite.training.step.step_info import StateInfo


class States:
    """Two sets of OrtValues on one device; a step reads one and writes the other.

    Attributes:
        info: State name -> its description.
        sets: The two sets: state name -> OrtValue.
        current: Which set holds the present values.
    """

    def __init__(
        self,
        states: Sequence[StateInfo],
        initial: Mapping[str, ir.TensorProtocol],
        device: Device,
    ) -> None:
        """Allocate both sets on a device, and fill the first with the initial values."""
        self.info = {state.name: state for state in states}
        self._device = device
        self.current = 0
        self.sets: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        for name, state in self.info.items():
            for tensors in self.sets:
                tensors[name] = empty(state.shape, _dtype(state), device)
            self._write(name, initial[name].numpy())

    def advance(self) -> None:
        """Make what the last step wrote the present values."""
        self.current = 1 - self.current

    def read(self, name: str) -> Array:
        """Return a copy of the present value of a state.

        Raises:
            OptionError: There is no such state.
        """
        state = self._known(name)
        return to_array(self.sets[self.current][name], _dtype(state))

    def read_all(self, *, other: bool = False) -> dict[str, Array]:
        """Return a copy of every state, by name.

        Args:
            other: Return the other set: before `advance` what the last step wrote, and behind it
                what it read.
        """
        tensors = self.sets[1 - self.current if other else self.current]
        return {name: to_array(tensors[name], _dtype(state)) for name, state in self.info.items()}

    def write(self, name: str, value: Any) -> None:
        """Replace the present value of a state.

        Raises:
            OptionError: There is no such state, the value is no tensor of numbers, or shape or kind
                differ.
        """
        state = self._known(name)
        self._write(name, assigned(value, _dtype(state).numpy(), state.shape, name))

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
        owned = np.array(array, _dtype(self.info[name]).numpy(), order="C")
        target = self.sets[self.current][name]
        if is_numpys(owned.dtype):
            target.update_inplace(owned)
        else:  # numpy does not know bfloat16
            target.update_inplace(to_ort_value(owned, self._device))


def _dtype(state: StateInfo) -> ir.DataType:
    member = elements.element(state.dtype)
    assert member is not None, "a step describes its states by ONNX type names"
    return ir.DataType(member)
