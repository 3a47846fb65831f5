"""State tensors of a training step: variables, slots, counters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import OptionError

if TYPE_CHECKING:
    from amp_rewrite.training.training_graph import TrainingGraph

Array = np.ndarray[Any, Any]

ROLES = ("variable", "slot", "global_step", "learning_rate", "statistic", "non_slot")
"""The roles that optimizers give; other rooms add their own (loss_scale, good_steps, ...)."""


class StateStore(Protocol):
    """Where state tensors live while training runs: a session."""

    def read_state(self, name: str) -> Array:
        """Return the present value of a state tensor."""
        ...

    def assign_state(self, name: str, value: Array) -> None:
        """Replace the present value of a state tensor."""
        ...


@dataclass(eq=False)
class State:
    """A tensor that one training step reads and the next one finds changed.

    Attributes:
        graph: The training graph that it belongs to.
        name: Its name in state dicts and checkpoints.
        value: What nodes of the training graph read: an initializer of it.
        initial: The value before the first step.
        role: What it is; see ROLES.
        trainable: Whether an optimizer updates it by a gradient.
        store: The session that holds the present value, or None if there is none.
    """

    graph: TrainingGraph = field(repr=False)
    name: str
    value: ir.Value = field(repr=False)
    initial: Array | ir.TensorProtocol = field(repr=False)
    role: str
    trainable: bool = False
    store: StateStore | None = field(default=None, repr=False)

    @property
    def dtype(self) -> ir.DataType:
        """The element type."""
        if isinstance(self.initial, np.ndarray):
            return ir.DataType.from_numpy(self.initial.dtype)
        return self.initial.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        if isinstance(self.initial, np.ndarray):
            return self.initial.shape
        return tuple(int(d) for d in self.initial.shape.numpy())

    def read(self) -> Array:
        """Return the present value: the session's, else the initial one."""
        if self.store is not None:
            return self.store.read_state(self.name)
        initial = self.initial
        return initial if isinstance(initial, np.ndarray) else np.asarray(initial.numpy())

    def assign(self, value: Any) -> None:
        """Replace the present value, and the initial one of sessions to come.

        Raises:
            OptionError: The shape differs.
        """
        array = np.array(value, dtype=self.dtype.numpy())
        if array.shape != self.shape:
            raise OptionError(
                "a state tensor cannot take a value of another shape",
                where=self.name,
                found=array.shape,
                expected=self.shape,
            )
        self.initial = array
        self.value.const_value = ir.tensor(array, dtype=self.dtype, name=self.value.name)
        if self.store is not None:
            self.store.assign_state(self.name, array)
