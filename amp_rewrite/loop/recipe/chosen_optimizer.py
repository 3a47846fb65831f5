"""Variables and an optimizer from words, as the command line gives them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from amp_rewrite import optimizers
from amp_rewrite.base.name_patterns import NamePattern, hint, suggestion
from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.errors import OptionError
from amp_rewrite.loop.recipe.chosen_model import argument
from amp_rewrite.loss_scaling import (
    DynamicLossScale,
    FixedLossScale,
    LossScale,
    LossScaleOptimizer,
    LossScaleValueError,
)
from amp_rewrite.training.graph.training_graph import GraphValue, State
from amp_rewrite.training.optimizers.conditional_update import check_mode
from amp_rewrite.training.optimizers.gradient_accumulation import Accumulation
from amp_rewrite.training.optimizers.optimizer import Optimizer
from amp_rewrite.training.optimizers.schedules import (
    CosineSchedule,
    LinearWarmUp,
    Schedule,
    StepSchedule,
)
from amp_rewrite.training.optimizers.train_op import TrainOp

_DECAYS = {"step": StepSchedule, "cosine": CosineSchedule}
_RARE = ("use_locking", "name")
_GROUP_OPTIONS = (
    *("learning_rate", "rate_multiplier", "weight_decay"),
    *("clipnorm", "clipvalue", "global_clipnorm"),
)
_AVERAGES = {"ema": ("decay",), "swa": ("start", "every")}
"""Kind of average -> the arguments that its numbers are."""
_SCHEDULES = "constant, step:STEPS[:RATE] or cosine:STEPS[:ALPHA]"


def variables_of(
    loss: GraphValue,
    trained: Iterable[str] = (),
    frozen: Iterable[str] = (),
    unfrozen: Iterable[str] = (),
) -> list[State]:
    """Return the variables that a loss depends on, or some of them.

    Args:
        loss: The loss.
        trained: Patterns of names of those that are trained; none is all that are
            not frozen, as constants of formulas are, and what has an adapter.
        frozen: Patterns of names of those that are not.
        unfrozen: Patterns of names of frozen ones that are trained anyway.

    Raises:
        OptionError: A pattern is not a regular expression, or matches none.
    """
    graph = loss.graph
    variables = graph.weights(loss.value)
    wanted = list(trained)
    chosen = {v.name for p in wanted for v in _matching_variables(variables, p)}
    left_out = {v.name for p in frozen for v in _matching_variables(variables, p)}
    chosen |= {v.name for p in unfrozen for v in _matching_variables(variables, p)}
    usual = chosen | {v.name for v in variables if not graph.is_frozen(v.name)}
    return [v for v in variables if v.name in (chosen if wanted else usual) - left_out]


def _matching_variables(variables: Sequence[State], pattern: str) -> list[State]:
    meant = NamePattern.of(pattern, "--variable, --freeze or --unfreeze")
    matches = [v for v in variables if meant.matches(v.name)]
    if not matches:
        names = [v.name for v in variables]
        some = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        raise OptionError(
            "the pattern matches no variable that the loss depends on",
            found=repr(pattern),
            expected=suggestion(pattern, names, some),
            remedy=hint(pattern),
        )
    return matches


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
    identifier = name.lower().replace("-", "").replace("_", "")
    default = optimizers.get(identifier)
    parameters = default.get_config()
    if identifier == "sgd":  # Keras's, which is one of two classes
        parameters |= {"momentum": 0.0, "nesterov": False}
    rate = parameters.pop("learning_rate") if learning_rate is None else learning_rate
    values = dict(argument(option, name, parameters, _RARE) for option in options)
    return optimizers.get(identifier, learning_rate=schedule_of(rate, schedule, warm_up), **values)


def grouped(optimizer: Optimizer, groups: Iterable[str], no_decay: str | None) -> Optimizer:
    """Return an optimizer with groups of variables, or as it is if there are none.

    Args:
        optimizer: The optimizer.
        groups: "PATTERNS KEY=NUMBER ..." each, with what `ParameterGroup` takes.
        no_decay: Patterns or words for variables that do not decay; None is none.

    Raises:
        OptionError: A group cannot be read.
        OptimizerValueError: A group is impossible.
    """
    settings = [_group(text) for text in groups]
    if not settings and no_decay is None:
        return optimizer
    return optimizers.ParameterGroups(optimizer, settings, no_decay=no_decay or ())


def _group(text: str) -> dict[str, Any]:
    """Return the settings of a group.

    Raises:
        OptionError: One is unknown, or has no number.
    """
    variables, *settings = text.split() or [""]
    names = dict.fromkeys(_GROUP_OPTIONS)
    return {"variables": variables, **dict(argument(s, repr(text), names) for s in settings)}


def averaging(optimizer: Optimizer, average: str | None) -> Optimizer:
    """Return an optimizer that keeps averages of the weights, or as it is if it shall not.

    Args:
        optimizer: The optimizer.
        average: "ema[:DECAY]" or "swa[:START[:EVERY]]"; None is no average.

    Raises:
        OptionError: It cannot be read.
        OptimizerValueError: A number is impossible.
    """
    if average is None:
        return optimizer
    kind, *numbers = average.split(":")
    names = _AVERAGES.get(kind, ())
    try:
        values: dict[str, Any] = {
            n: json.loads(text) for n, text in zip(names, numbers, strict=False)
        }
    except ValueError:
        values = {}
    if kind not in _AVERAGES or len(values) < len(numbers):
        expected = "ema[:DECAY] or swa[:START[:EVERY]]"
        raise OptionError("unknown average", found=repr(average), expected=expected)
    equal: dict[str, Any] = {"decay": None} if kind == "swa" else {}
    return optimizers.WeightAverage(optimizer, **equal, **values)


def scaled(
    optimizer: Optimizer,
    loss_scale: str | None,
    precision: str,
    conditional: str = "if",
    max_skips: int = 0,
    options: Iterable[str] = (),
) -> Optimizer:
    """Return an optimizer with a loss scale, or as it is if there is none.

    Args:
        optimizer: The optimizer.
        loss_scale: "dynamic", a number for a fixed one, or "none"; None is "dynamic" for float16
            and "none" for all else, whose range is that of float32.
        precision: What forward and backward pass compute in.
        conditional: "if" or "select"; see `LossScaleOptimizer`.
        max_skips: After how many skipped steps in a row at its floor a dynamic loss scale is given
            up; 0 is never.
        options: Further arguments of a dynamic loss scale, as KEY=VALUE.

    Raises:
        OptionError: `loss_scale`, `conditional` or an option is impossible.
        LossScaleValueError: The number is, or the optimizer clips gradients itself.
    """
    check_mode(conditional)
    if loss_scale is None:
        loss_scale = "dynamic" if precision == FLOAT16.name else "none"
    scale = loss_scale_of(loss_scale, max_skips, options)
    return (
        optimizer
        if scale is None
        else LossScaleOptimizer(optimizer, scale, conditional=conditional)
    )


def minimize(
    optimizer: Optimizer,
    loss: GraphValue,
    global_step: State,
    variables: Sequence[State],
    clip_norm: float | None,
    accumulate: int = 1,
) -> TrainOp:
    """Return the step that minimizes a loss, its gradients clipped by their global norm.

    They are clipped where they are unscaled, accumulated and summed over shards.

    Args:
        optimizer: The optimizer, with its wrappers.
        loss: What to minimize.
        global_step: The state that counts the steps.
        variables: What to train.
        clip_norm: The largest global norm, or None.
        accumulate: How many batches make one update.

    Raises:
        OptimizerValueError: `clip_norm` is not positive; and what `Optimizer.minimize` raises.
    """
    if clip_norm is None:
        return optimizer.minimize(loss, global_step, variables, accumulate=accumulate)
    accumulation = Accumulation(accumulate, conditional=getattr(optimizer, "conditional", "if"))
    pairs = accumulation.add(optimizer.compute_gradients(loss, variables))
    pairs = optimizer.reduce_gradients(pairs)
    clipped, _ = optimizers.clip_by_global_norm([gradient for gradient, _ in pairs], clip_norm)
    applied = [(g, variable) for g, (_, variable) in zip(clipped, pairs, strict=True)]
    return accumulation.every(optimizer.apply_reduced(applied, global_step))


def loss_scale_of(text: str, max_skips: int = 0, options: Iterable[str] = ()) -> LossScale | None:
    """Return a loss scale, None for "none"; see `scaled`.

    Raises:
        OptionError: It is not a number, or there are options for what takes none.
        LossScaleValueError: The number is below 1, or an option is impossible.
    """
    if text == "dynamic":
        config = DynamicLossScale().get_config()
        values = dict(
            argument(o, "the loss scale", config, ("max_consecutive_skips",)) for o in options
        )
        limit: dict[str, Any] = {"max_consecutive_skips": max_skips}
        return DynamicLossScale(**(limit | values))
    if options:
        raise OptionError(
            "only a dynamic loss scale takes options",
            found=f"{', '.join(options)} for {text!r}",
            remedy="leave them out, or --loss-scale dynamic",
        )
    if text == "none":
        return None
    try:
        return FixedLossScale(float(text))
    except LossScaleValueError:
        raise
    except ValueError:
        raise OptionError(
            "impossible loss scale", found=repr(text), expected="dynamic, a number or none"
        ) from None


def schedule_of(rate: float, text: str, warm_up: int) -> float | Schedule:
    """Return a learning rate, or a schedule of it."""
    kind, *numbers = text.split(":")
    try:
        parameters = [float(n) for n in numbers]
    except ValueError:
        parameters = []
    schedule_or_rate: float | Schedule = rate
    if kind in _DECAYS and len(parameters) in (1, 2) and parameters[0].is_integer():
        schedule_or_rate = _DECAYS[kind](rate, int(parameters[0]), *parameters[1:])
    elif text != "constant":
        raise OptionError("unknown schedule", found=repr(text), expected=_SCHEDULES)
    return LinearWarmUp(schedule_or_rate, warm_up) if warm_up else schedule_or_rate
