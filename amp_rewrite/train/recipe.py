"""A loss and an optimizer from words, as the command line gives them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import onnx_ir as ir

from amp_rewrite import losses, optimizers
from amp_rewrite.errors import OptionError
from amp_rewrite.grad.training_graph import GraphValue, value
from amp_rewrite.optimizers.optimizer import Optimizer
from amp_rewrite.optimizers.schedules import (
    CosineSchedule,
    LinearWarmUp,
    Schedule,
    StepSchedule,
)

_LOSSES: Mapping[str, Callable[[ir.Model, str, str], GraphValue]] = {
    "softmax-cross-entropy": losses.softmax_cross_entropy,
    "sigmoid-cross-entropy": losses.sigmoid_cross_entropy,
    "mean-squared-error": losses.mean_squared_error,
}
_CLASSIFYING = ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
_SCHEDULES = "constant, step:STEPS[:RATE] or cosine:STEPS[:ALPHA]"


def loss_of(model: ir.Model, text: str) -> tuple[GraphValue, dict[str, str] | None]:
    """Return a loss, and the names of the logits and labels if they are known.

    Args:
        model: The forward model; a loss that it lacks is added to it.
        text: The name of a value, or KIND:PREDICTIONS:LABELS.

    Raises:
        OptionError: The kind is unknown, or the model has no such value.
    """
    kind, colon, rest = text.partition(":")
    if kind in _LOSSES and colon:
        predictions, _, labels = rest.rpartition(":")
        if not predictions or not labels:
            raise OptionError(
                "a loss needs the names of two values",
                found=text,
                expected=f"{kind}:LOGITS:LABELS",
            )
        loss = _LOSSES[kind](model, predictions, labels)
        known = {"logits": predictions, "labels": labels} if kind.startswith("softmax") else None
        return loss, known
    if kind in _LOSSES:
        raise OptionError("a loss needs the names of two values", expected=f"{kind}:LOGITS:LABELS")
    found = value(model, text)
    return found, _targets(found.value)


def _targets(loss: ir.Value) -> dict[str, str] | None:
    node = loss.producer()
    if node is None or node.op_type not in _CLASSIFYING:
        return None
    logits, labels = node.inputs[0], node.inputs[1]
    if logits is None or labels is None or not labels.is_graph_input():
        return None
    return {"logits": str(logits.name), "labels": str(labels.name)}


def optimizer_of(
    name: str, learning_rate: float | None, options: Iterable[str], schedule: str, warm_up: int
) -> Optimizer:
    """Return an optimizer.

    Args:
        name: Its class, in any case, with or without dashes: "adam", "gradient-descent".
        learning_rate: The learning rate; None is the optimizer's default.
        options: Further arguments, as KEY=VALUE with a number, true or false.
        schedule: "constant", "step:STEPS[:RATE]" or "cosine:STEPS[:ALPHA]".
        warm_up: Over how many steps the learning rate grows from 0; 0 is none.

    Raises:
        OptionError: A name or a number is impossible.
    """
    default = optimizers.get(name.lower().replace("-", "").replace("_", ""))
    parameters = {**default.get_config()}
    given = dict(_argument(option, default.name, parameters) for option in options)
    rate = parameters.pop("learning_rate") if learning_rate is None else learning_rate
    arguments = parameters | given | {"learning_rate": schedule_of(rate, schedule, warm_up)}
    return type(default).from_config(arguments)


def _argument(text: str, name: str, parameters: Mapping[str, Any]) -> tuple[str, Any]:
    key, equals, given = text.partition("=")
    key = key.strip().replace("-", "_")
    if not equals or key not in parameters or key == "learning_rate":
        known = [p for p in parameters if p != "learning_rate"]
        raise OptionError(
            f"{name} takes no such option", found=text, expected=f"KEY=VALUE, {', '.join(known)}"
        )
    try:
        return key, json.loads(given.strip().lower())
    except ValueError:
        raise OptionError(
            f"the option {key!r} has no value that can be read",
            found=given,
            expected="a number, true or false",
        ) from None


def schedule_of(rate: float, text: str, warm_up: int) -> float | Schedule:
    """Return a learning rate, or a schedule of it.

    Raises:
        OptionError: The schedule is unknown, or a number is impossible.
    """
    kind, *numbers = text.split(":")
    try:
        given = [float(n) for n in numbers]
        steps = int(given[0]) if given else 0
    except ValueError:
        kind, given, steps = "", [], 0
    found: float | Schedule = rate
    if kind == "step" and given:
        found = StepSchedule(rate, steps, *given[1:])
    elif kind == "cosine" and given:
        found = CosineSchedule(rate, steps, *given[1:])
    elif kind != "constant" or given:
        raise OptionError("unknown schedule", found=repr(text), expected=_SCHEDULES)
    return LinearWarmUp(found, warm_up) if warm_up else found
