"""A low-rank adapter of a weight, and a model whose weights are merged with theirs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import StepError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """A low-rank adapter: `scale * A B` is added to a weight that maps (in) to (out) numbers.

    E. Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021,
    https://arxiv.org/abs/2106.09685.

    Attributes:
        weight: The name of the weight: (in, out), or (out, in) if `output_first`.
        module: The module that it lies in.
        a: The name of the state A: (in, rank).
        b: The name of the state B: (rank, out).
        rank: The length between both.
        alpha: `scale` times the rank.
        dropout: The share of the inputs that A does not see in training.
        output_first: Whether the weight is (out, in).
    """

    weight: str
    module: str
    a: str
    b: str
    rank: int
    alpha: float
    dropout: float = 0.0
    output_first: bool = False

    @property
    def scale(self) -> float:
        """What the product of both is multiplied by."""
        return self.alpha / self.rank

    def merged(self, weight: Array, a: Array, b: Array) -> Array:
        """Return a weight with the adapter added in float32 at least, in the weight's type."""
        wide = np.result_type(a.dtype, np.float32)
        change = (a.astype(wide) @ b.astype(wide)) * wide.type(self.scale)
        change = change.T if self.output_first else change
        return (weight.astype(wide) + change).astype(weight.dtype)


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
