"""What a model is trained with, from words: its loss, adapters, and how weights are stored."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import onnx_ir as ir

from amp_rewrite import losses
from amp_rewrite.errors import OptionError
from amp_rewrite.training.graph.lora import lora
from amp_rewrite.training.graph.store_weights import store_weights
from amp_rewrite.training.graph.training_graph import GraphValue, TrainingGraph, training_graph


def argument(
    text: str, name: str, defaults: Mapping[str, Any], rare: Collection[str] = ()
) -> tuple[str, Any]:
    """Return the name and the value of an argument.

    Args:
        text: KEY=VALUE; dashes of the key stand for underscores, the value is JSON or a word.
        name: What takes it.
        defaults: The arguments that it takes -> their defaults.
        rare: Those that an error does not name.

    Raises:
        OptionError: There is no such argument, or the value cannot be read.
    """
    key, equals, value = text.partition("=")
    key = key.strip().replace("-", "_")
    if not equals or key not in defaults:
        names = ", ".join(key for key in defaults if key not in rare)
        raise OptionError(
            f"{name} takes no such option", found=text, expected=f"KEY=VALUE, {names}"
        )
    present = defaults[key]
    if isinstance(present, str):
        return key, value
    for spelling in (value, value.lower()):
        try:
            return key, json.loads(spelling)
        except ValueError:
            continue
    if isinstance(present, tuple):
        return key, (value,)
    raise OptionError(
        f"the option {key!r} has no value that can be read",
        found=value,
        expected="a number, true or false",
    )


KINDS: Mapping[str, Callable[..., GraphValue]] = {
    name.replace("_", "-"): getattr(losses, name) for name in losses.__all__
}
"""Every loss by its name in words."""

_ADAPTER_OPTIONS = ("rank", "alpha", "dropout", "seed")


def loss_of(model: ir.Model, text: str, options: Iterable[str] = ()) -> GraphValue:
    """Return a loss.

    Args:
        model: The forward model; a loss that it lacks is added to it.
        text: The name of a value, or KIND:PREDICTIONS:LABELS.
        options: Arguments of the kind, as KEY=VALUE: "label_smoothing=0.1".

    Raises:
        OptionError: The kind is unknown, the model has no such value, it is not a scalar, or the
            kind takes no such option.
    """
    graph = training_graph(model)
    kind, _, rest = text.partition(":")
    if graph.has(text):
        for option in options:
            raise OptionError("a loss of the model itself takes no options", found=option)
        return _scalar(graph.value(text))
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
    """Return the names in NAME:NAME, of which either may hold colons itself."""
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


def add_adapters(model: ir.Model, weights: str | None, options: Iterable[str] = ()) -> None:
    """Give weights of a model low-rank adapters; see `lora`, of which `options` are KEY=VALUE."""
    defaults = inspect.signature(lora).parameters
    arguments = {name: defaults[name].default for name in _ADAPTER_OPTIONS}
    values = dict(argument(option, "a low-rank adapter", arguments) for option in options)
    if weights is not None:
        lora(model, weights, **values)
    elif values:
        raise OptionError(
            "options of adapters, and no adapters",
            found=", ".join(options),
            remedy="name the weights with --lora",
        )


def store(model: ir.Model, text: str | None) -> None:
    """Store weights in a low type, "DTYPE" or "DTYPE:PATTERNS"; see `store_weights`.

    Raises:
        OptionError: What `store_weights` raises.
    """
    if text is not None:
        dtype, _, patterns = text.partition(":")
        store_weights(model, patterns or "*", dtype)
