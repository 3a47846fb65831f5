"""A loss, an optimizer and a loss scale from words of the command line.

Unknown words are an OptionError.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import onnx_ir as ir

from amp_rewrite import losses, optimizers
from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.errors import OptionError
from amp_rewrite.loss_scaling import (
    DynamicLossScale,
    FixedLossScale,
    LossScale,
    LossScaleOptimizer,
    LossScaleValueError,
)
from amp_rewrite.training.graph.training_graph import GraphValue, TrainingGraph, training_graph
from amp_rewrite.training.optimizers.conditional_update import check_mode
from amp_rewrite.training.optimizers.optimizer import Optimizer

KINDS: Mapping[str, Callable[..., GraphValue]] = {
    name.replace("_", "-"): getattr(losses, name) for name in losses.__all__
}
"""Every loss by its name in words."""
_RARE = ("use_locking", "name")


def argument(
    text: str, name: str, defaults: Mapping[str, Any], rare: Collection[str] = ()
) -> tuple[str, Any]:
    """Return the name and the value of an argument, given as KEY=VALUE.

    Args:
        text: Dashes of the key stand for underscores; the value is JSON or a word.
        name: The owner of the argument, for errors.
        defaults: Its arguments -> their defaults.
        rare: Arguments that errors do not name.
    """
    key, equals, value = text.partition("=")
    key = key.strip().replace("-", "_")
    if not equals or key not in defaults:
        names = ", ".join(key for key in defaults if key not in rare)
        raise OptionError(
            f"{name} takes no such option",
            found=text,
            expected=f"KEY=VALUE, where KEY is one of {names}",
            remedy="use --learning-rate" if key in ("lr", "learning_rate") else None,
        )
    present = defaults[key]
    if isinstance(present, str):
        return key, value
    for spelling in (value, value.lower()):
        try:
            return key, json.loads(spelling)
        except ValueError:
            continue
    raise OptionError(
        f"the option {key!r} has no value that can be read",
        found=value,
        expected="a number, true or false",
    )


def loss_of(model: ir.Model, text: str, options: Iterable[str] = ()) -> GraphValue:
    """Return a loss: a value of the model, or KIND:PREDICTIONS:LABELS with KEY=VALUE options."""
    graph = training_graph(model)
    kind, _, rest = text.partition(":")
    if graph.has(text):
        for option in options:
            raise OptionError("a loss of the model itself takes no options", found=option)
        return _scalar(graph.value(text))
    kind = kind.replace("_", "-")  # as the function is called in Python
    if kind not in KINDS:
        if rest.count(":"):
            raise OptionError("unknown kind of loss", found=repr(kind), expected=" or ".join(KINDS))
        return graph.value(text)  # an error that names similar ones
    names = _two_names(graph, rest)
    if names is None:
        raise OptionError(
            "a loss needs the names of two values", found=text, expected=f"{kind}:LOGITS:LABELS"
        )
    parameters = inspect.signature(KINDS[kind]).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    values = dict(argument(option, kind, defaults) for option in options)
    return _scalar(KINDS[kind](model, *names, **values))


def _two_names(graph: TrainingGraph, text: str) -> tuple[str, str] | None:
    """Return the names in NAME:NAME; either may contain colons."""
    parts = text.split(":")
    splits = [(":".join(parts[:i]), ":".join(parts[i:])) for i in range(1, len(parts))]
    splits = [names for names in splits if all(names)]
    present = [names for names in splits if graph.has(names[0])]
    return next(iter(present or splits), None)


def _scalar(loss: GraphValue) -> GraphValue:
    if loss.shape is None or all(length in (1, None) for length in loss.shape):
        return loss
    raise OptionError(
        "the loss must be a scalar",
        where=loss.name,
        found=f"the shape {list(loss.shape)}",
        remedy=f"add a loss, for example softmax-cross-entropy:{loss.name}:LABELS",
    )


def optimizer_of(name: str, learning_rate: float | None, options: Iterable[str]) -> Optimizer:
    """Return an optimizer, of a name in any case, with or without dashes, and KEY=VALUE options."""
    identifier = name.lower().replace("-", "").replace("_", "")
    parameters = optimizers.get(identifier).get_config()
    if identifier == "sgd":  # Keras's, which is one of two classes
        parameters |= {"momentum": 0.0, "nesterov": False}
    default_rate = parameters.pop("learning_rate")
    values = dict(argument(option, name, parameters, _RARE) for option in options)
    rate = default_rate if learning_rate is None else learning_rate
    return optimizers.get(identifier, learning_rate=rate, **values)


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
            and "none" for other types, whose range is that of float32.
        precision: The type of forward and backward pass.
        conditional: "if" or "select"; see `LossScaleOptimizer`.
        max_skips: `max_consecutive_skips` of a dynamic loss scale.
        options: Further arguments of a dynamic loss scale, as KEY=VALUE.
    """
    check_mode(conditional)
    text = loss_scale or ("dynamic" if precision == FLOAT16.name else "none")
    scale = _loss_scale(text, max_skips, options)
    if scale is None:
        return optimizer
    return LossScaleOptimizer(optimizer, scale, conditional=conditional)


def _loss_scale(text: str, max_skips: int, options: Iterable[str]) -> LossScale | None:
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
