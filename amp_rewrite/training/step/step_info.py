"""The description of a step model: which input and output belong to one state tensor."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph import elements
from amp_rewrite.graph.step_metadata import VERSION

LOSS = "loss"
"""The name by which a step's loss is fetched."""
LOGITS, PREDICTIONS, LABELS = "logits", "predictions", "labels"
IGNORED, DENOMINATOR = "ignore_index", "denominator"
"""The keys of `StepInfo.targets`: the values that a loss compares."""
DEFAULT_FETCHES = (LOSS, "grads_finite")
"""The default fetches of a step, where it has them."""
CONSTANT_UNLESS_UPDATED = ("variable", "statistic")
"""Roles whose states stay constants of a step that does not update them."""


@dataclass(frozen=True)
class StateInfo:
    """One state tensor of a step.

    Attributes:
        name: Its name in state dicts and checkpoints; also the name of the graph input, whose
            default is the initial value.
        output: The graph output that holds its next value.
        role: "variable", "slot", "statistic", "global_step", "learning_rate", ...
        dtype: Its element type as ONNX spells it in type strings, for example "float".
    """

    name: str
    output: str
    role: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def element(self) -> ir.DataType:
        """The element type as onnx_ir has it."""
        member = elements.element(self.dtype)
        assert member is not None, "a step describes its states by ONNX type names"
        return ir.DataType(member)


@dataclass(frozen=True)
class StepInfo:
    """The description of a step model.

    Attributes:
        states: Its state tensors, in the order of their inputs; `inputs` are the others.
        fetches: Name that `session.run` knows -> graph output.
        loss: The name of the loss in the graph, or None.
        targets: The values that evaluation compares, if the loss tells; else None. The
            names of the "logits" or other "predictions", of the "labels", and of the "denominator"
            of a weighted mean; "ignore_index" is a number.
        seed: The value at which the only backward pass begins, or None.
        gradients: Variable -> the value that carries its gradient; None if not known.
        precision: The type of forward and backward: "float32", "float16" or "bfloat16".
        loss_scale: The configuration of the loss scale, or None.
        accumulate: How many batches make one update.
        boundary: The value that tells whether a batch is the last one of an update, or None.
        averages: Variable -> the state that holds its average, or None.
    """

    states: tuple[StateInfo, ...]
    inputs: tuple[str, ...]
    fetches: dict[str, str]
    loss: str | None = None
    targets: dict[str, Any] | None = None
    seed: str | None = None
    gradients: dict[str, str] | None = None
    precision: str = FLOAT32.name
    loss_scale: dict[str, Any] | None = None
    accumulate: int = 1
    boundary: str | None = None
    averages: dict[str, str] | None = None

    def to_json(self) -> str:
        """Return the description as deterministic JSON."""
        return json.dumps({"version": VERSION, **asdict(self)}, sort_keys=True)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the state tensors."""
        return tuple(state.name for state in self.states)

    def having(self, role: str) -> StateInfo | None:
        """Return the first state with a role, or None."""
        return next((state for state in self.states if state.role == role), None)
