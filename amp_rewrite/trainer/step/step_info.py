"""What a step model says about itself: which input and output belong to one state tensor."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import StepError
from amp_rewrite.graph.keys import STEP_KEY
from amp_rewrite.graph.step_metadata import VERSION, step_description
from amp_rewrite.training.adapter import Adapter

LOSS = "loss"
DEFAULT_FETCHES = (LOSS, "grads_finite")
"""What a step computes without being asked, where it has it."""
CONSTANT_UNLESS_UPDATED = ("variable", "statistic")
"""Roles whose states stay constants of a step that does not update them."""


@dataclass(frozen=True)
class StateInfo:
    """One state tensor of a step.

    Attributes:
        name: Its name in state dicts and checkpoints; also the name of the graph input, whose
            default is the initial value.
        output: The graph output that holds its next value.
        role: What it is: "variable", "slot", "statistic", "global_step", "learning_rate", ...
        dtype: Its element type as ONNX spells it in type strings, for example "float".
        shape: Its dimensions.
    """

    name: str
    output: str
    role: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class StepInfo:
    """The description of a step model.

    Attributes:
        states: Its state tensors, in the order of their inputs.
        inputs: The names of the data inputs.
        fetches: Name that `session.run` knows -> graph output.
        loss: The name of the loss in the graph, or None.
        targets: What evaluation compares, as far as the loss tells; None if it tells nothing. The
            names of the "logits" or other "predictions", of the "labels", and of the "denominator"
            of a weighted mean; "ignore_index" is a number.
        seed: The value at which the only backward pass begins, or None.
        gradients: Variable -> the value that carries its gradient; None if not known.
        gradient_rows: Variable -> the value that says which of its rows that gradient holds, where
            it does not hold all; None if it does.
        precision: What forward and backward compute in: "float32", "float16" or "bfloat16".
        loss_scale: The configuration of the loss scale, or None; of the first of several losses.
        loss_scales: The configuration of each loss's own loss scale, if there are several losses.
        accumulate: How many batches make one update.
        boundary: The value that tells whether a batch is the last one of an update, or None.
        averages: Variable -> the state that holds its average, or None.
        adapters: The low-rank adapters of weights.
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
    adapters: tuple[Adapter, ...] = ()
    gradient_rows: dict[str, str] | None = None
    loss_scales: tuple[dict[str, Any], ...] = ()

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


def read_info(model: ir.Model, where: object = None) -> StepInfo:
    """Return the description of a step model.

    Args:
        model: A model that `build_step` made, perhaps saved and loaded since.
        where: The file, for errors.

    Raises:
        StepError: The model is no step model, or a later version wrote it.
    """
    if STEP_KEY not in model.metadata_props:
        raise StepError(
            "not a training step",
            where=where,
            found=f"a model without metadata {STEP_KEY!r}",
            remedy="make a step with amp-rewrite train-step, or with build_step",
        )
    content = step_description(model)
    try:
        if content.pop("version") != VERSION:
            raise StepError(
                "another version of this package wrote the step", where=where, expected=VERSION
            )
        info = _info(content)
    except (KeyError, TypeError) as error:
        raise StepError(
            f"the metadata {STEP_KEY!r} of the model cannot be read",
            where=where,
            found=error,
            remedy="build the step again",
        ) from error
    _check_names(info, model, where)
    return info


def _check_names(info: StepInfo, model: ir.Model, where: object) -> None:
    """Refuse a description whose states and inputs are not the inputs of the graph, each once."""
    described = Counter((*info.names, *info.inputs))
    inputs = Counter(str(value.name) for value in model.graph.inputs)
    outputs = Counter(state.output for state in info.states)
    names = [*((described - inputs) + (inputs - described)), *(outputs - Counter(outputs.keys()))]
    if names:
        raise StepError(
            f"the metadata {STEP_KEY!r} of the model do not fit its graph",
            where=where,
            found=f"{names[0]!r} missing, or described twice",
            expected="each input of the graph as a state or an input, with an output of its own",
            remedy="build the step again",
        )


def _info(content: dict[str, Any]) -> StepInfo:
    states: list[dict[str, Any]] = content.pop("states")
    inputs: Iterable[str] = content.pop("inputs")
    for state in states:
        state["shape"] = tuple(state["shape"])
    adapters: list[dict[str, Any]] = content.pop("adapters", [])
    return StepInfo(
        states=tuple(StateInfo(**state) for state in states),
        adapters=tuple(Adapter.from_json(adapter) for adapter in adapters),
        loss_scales=tuple(content.pop("loss_scales", ())),
        inputs=tuple(inputs),
        **content,
    )
