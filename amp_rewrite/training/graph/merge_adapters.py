"""A model whose weights are merged with their adapters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import StepError
from amp_rewrite.training.graph.adapter import Adapter

Array = np.ndarray[Any, Any]


def merge(model: ir.Model, adapters: Iterable[Adapter], states: Mapping[str, Array]) -> None:
    """Add adapters to the weights of a model, in place; it has the results that they made.

    Raises:
        StepError: The model lacks a weight.
    """
    for adapter in adapters:
        weight = model.graph.initializers.get(adapter.weight)
        if weight is None or weight.const_value is None:
            raise StepError(
                "an adapter cannot be merged into the model",
                where=adapter.weight,
                found="the model has no such weight",
                remedy="build the step again from the model that it trains",
            )
        old = weight.const_value
        array = adapter.merged(old.numpy(), states[adapter.a], states[adapter.b])
        weight.const_value = ir.tensor(array, dtype=old.dtype, name=weight.name)


def _cannot_merge(adapter: Adapter, obstacle: str) -> StepError:
    return StepError(
        "an adapter cannot be merged into the model",
        where=adapter.weight,
        found=obstacle,
        remedy="build the step again from the model that it trains",
    )
