"""Values of a training graph by the names that the caller gave, or that a step says of itself.

A name that denotes nothing suitable is an InjectError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.base.name_patterns import did_you_mean
from amp_rewrite.dtypes import dtype_name
from amp_rewrite.errors import InjectError
from amp_rewrite.graph.metadata_keys import STEP_KEY
from amp_rewrite.training.step.cut_step import values_by_name
from amp_rewrite.training.step.step_info import StepInfo

T = TypeVar("T")

_SCALE_ROLE = "loss_scale"
_RANDOM_ROLE = "random"
"""The role of the counter of Dropout, which advances in skipped steps too."""


@dataclass(frozen=True)
class Names:
    """The names of the parts of a training graph; see `inject_loss_scaling`."""

    loss: str
    seed: str
    gradients: Mapping[str, str]
    updates: Mapping[str, str]


@dataclass(frozen=True)
class NamedValues:
    """The values that names denote.

    Attributes:
        loss: The loss.
        seed: Where the backward pass begins.
        gradients: Variable -> the value that carries its gradient.
        states: State -> the graph input or initializer that it is read from.
        following: State -> its next value, before any condition.
        outputs: Name of a graph output -> its value.
    """

    loss: ir.Value
    seed: ir.Value
    gradients: Mapping[str, ir.Value]
    states: Mapping[str, ir.Value]
    following: Mapping[str, ir.Value]
    outputs: Mapping[str, ir.Value]


def names_of(
    info: StepInfo | None,
    loss: str | None,
    seed: str | None,
    gradients: Mapping[str, str] | None,
    updates: Mapping[str, str] | None,
) -> Names:
    """Return the names that the caller gave, completed by those that a step says of itself."""
    for option, name in {"loss": loss, "seed": seed}.items():
        if name is not None:
            arguments.text(option, name, what="the name of a value")
    for option, mapping in {"gradients": gradients, "updates": updates}.items():
        if mapping is not None:
            named = arguments.mapping(option, mapping, what="names of values by names of states")
            for name in (*named, *named.values()):
                arguments.text(f"what {option} holds", name, what="the name of a value")
    scale = None if info is None else info.having(_SCALE_ROLE)
    if scale is not None:
        raise InjectError(
            "the step has a loss scale already",
            where=scale.name,
            remedy="inject one into the step without",
        )
    states = () if info is None else info.states
    told = {s.name: s.output for s in states if s.role != _RANDOM_ROLE} if info else None
    return Names(
        loss=_first("loss", loss, info and info.loss),
        seed=_first("seed", seed, info and info.seed),
        gradients=_first("gradients", gradients, info and info.gradients),
        updates=_first("updates", updates, told),
    )


def _first(name: str, argument: T | None, noted: T | None) -> T:
    content = noted if argument is None else argument
    if content is None:
        raise InjectError(
            f"{name} is not given, and the model does not tell it",
            found=f"no {name} in the metadata {STEP_KEY!r}",
            remedy=f"pass {name}; only steps of this package with one backward pass know it",
        )
    if not content:
        raise InjectError(f"{name} is empty", expected="at least one entry")
    return content


def find(graph: ir.Graph, names: Names) -> NamedValues:
    """Return the values that names denote."""
    values = {str(name): value for name, value in values_by_name(graph).items()}
    states = {name: _value(values, "state", name) for name in names.updates}
    for name, value in states.items():
        if not (value.is_graph_input() or value.is_initializer()):
            raise InjectError(
                "a state must be a graph input or an initializer",
                where=name,
                found="the output of a node",
                remedy="name the input that the state is read from; updates maps it to its next "
                "value",
            )
    for variable in names.gradients:
        if variable not in states:
            raise InjectError(
                "a variable with a gradient has no update",
                where=variable,
                expected=f"one of the states in updates: {', '.join(states)}",
                remedy=did_you_mean(variable, states)
                or "add it to updates, or leave its gradient out",
            )
    step_values = NamedValues(
        loss=_value(values, "loss", names.loss),
        seed=_value(values, "seed", names.seed),
        gradients={k: _value(values, f"gradient of {k}", n) for k, n in names.gradients.items()},
        states=states,
        following={k: _value(values, f"next value of {k}", n) for k, n in names.updates.items()},
        outputs={str(value.name): value for value in graph.outputs},
    )
    _check_types(step_values)
    return step_values


def _value(values: Mapping[str, ir.Value], what: str, name: str) -> ir.Value:
    if name not in values:
        raise InjectError(
            f"the model has no value of this name, given as {what}",
            where=name,
            remedy=did_you_mean(name, values) or f"it has {len(values)} values of other names",
        )
    return values[name]


def _check_types(step_values: NamedValues) -> None:
    single = {"loss": step_values.loss, "seed": step_values.seed}
    single |= {f"gradient of {name}": value for name, value in step_values.gradients.items()}
    for what, value in single.items():
        if value.dtype is not ir.DataType.FLOAT:
            raise InjectError(
                f"the {what} is not float32",
                where=value.name,
                found="no type" if value.dtype is None else dtype_name(value.dtype),
                expected="float32",
                remedy="inject the loss scale into the float32 graph, and rewrite the result to "
                "low precision",
            )
    for name, state in step_values.states.items():
        following = step_values.following[name]
        if state.dtype and following.dtype and state.dtype is not following.dtype:
            raise InjectError(
                "the next value of a state has another type than the state",
                where=name,
                found=f"{following.name}: {dtype_name(following.dtype)}",
                expected=dtype_name(state.dtype),
            )
