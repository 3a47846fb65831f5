"""How weights are trained, as words: low-rank adapters, and what weights are stored in."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import onnx_ir as ir

from amp_rewrite.errors import OptionError
from amp_rewrite.loop.recipe.key_value import argument
from amp_rewrite.training.graph.lora import lora
from amp_rewrite.training.graph.store_weights import store_weights

_ADAPTER_OPTIONS = ("rank", "alpha", "dropout", "seed")


def add_adapters(model: ir.Model, weights: str | None, options: Iterable[str] = ()) -> None:
    """Give weights of a model low-rank adapters; see `lora`.

    Args:
        model: What is trained.
        weights: Patterns for their names, as for `lora`; None adds none.
        options: Arguments of `lora`, as KEY=VALUE.

    Raises:
        OptionError: An option is unknown or impossible, or there are options only; and what `lora`
            raises.
    """
    defaults = inspect.signature(lora).parameters
    known = {name: defaults[name].default for name in _ADAPTER_OPTIONS}
    given = dict(argument(option, "a low-rank adapter", known) for option in options)
    if weights is not None:
        lora(model, weights, **given)
    elif given:
        raise OptionError(
            "options of adapters, and no adapters",
            found=", ".join(options),
            remedy="name the weights with --lora",
        )


def store(model: ir.Model, text: str | None) -> None:
    """Store weights of a model in a low type; see `store_weights`.

    Args:
        model: What is trained.
        text: "DTYPE" for all weights, or "DTYPE:PATTERNS"; None stores none.

    Raises:
        OptionError: What `store_weights` raises.
    """
    if text is not None:
        dtype, _, patterns = text.partition(":")
        store_weights(model, patterns or "*", dtype)
