"""Adam with decoupled weight decay."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import onnx_ir as ir

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.graph.training_graph import State
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.learning_rate import Rate
from amp_rewrite.training.optimizers.rules.adam import (
    BETA1_POWER,
    BETA2_POWER,
    Adam,
    AdamRule,
    AdamSlots,
)
from amp_rewrite.training.optimizers.update_rule import SharedInput, UpdateInput


class AdamWScalars(NamedTuple):
    """What the updates of all variables share: AdamScalars and what a weight loses."""

    rate: ir.Value
    epsilon: ir.Value
    decay: ir.Value  # learning_rate * weight_decay


def _patterns(name: str, expressions: Iterable[str]) -> tuple[str, ...]:
    """Return regular expressions for variable names, checked.

    Raises:
        OptimizerTypeError: They are not a list of texts; a single text is none.
        OptimizerValueError: One is not a regular expression.
    """
    listed = isinstance(expressions, Iterable) and not isinstance(expressions, str)  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
    patterns = tuple(expressions) if listed else ()
    if not listed or not all(isinstance(entry, str) for entry in patterns):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptimizerTypeError(
            f"{name} must be a list of regular expressions", found=repr(expressions)
        )
    for expression in patterns:
        try:
            re.compile(expression)
        except re.error as error:
            raise OptimizerValueError(
                "not a regular expression", where=repr(expression), found=error
            ) from error
    return patterns


@dataclass(frozen=True, kw_only=True)
class DecayingAdamRule(AdamRule):
    """A rule with Adam's moments and a weight decay that is not a part of the gradient."""

    weight_decay: float = check.field(check.number, default=0.0)
    exclude_from_weight_decay: Iterable[str] = check.field(_patterns, default=())

    def variant(self, variable: State) -> bool:
        """Return whether a variable decays."""
        excluded = (re.search(e, variable.name) for e in self.exclude_from_weight_decay)
        return bool(self.weight_decay) and not any(excluded)


@dataclass(frozen=True, kw_only=True)
class AdamWRule(DecayingAdamRule):
    """Adam whose weight decay is not a part of the gradient.

        w -= learning_rate * weight_decay * w, then Adam's step

    I. Loshchilov, F. Hutter, "Decoupled Weight Decay Regularization", 2019,
    https://arxiv.org/abs/1711.05101. The decay is multiplied with the learning rate, as in PyTorch.
    It touches every row, so that a sparse gradient is made dense.
    """

    def shared(self, given: SharedInput) -> AdamWScalars:
        """Return AdamWScalars."""
        rate, epsilon = super().shared(given)
        return AdamWScalars(rate, epsilon, given.b.mul(given.rate, self.weight_decay))

    def update(
        self, given: UpdateInput, shared: Any, slots: AdamSlots
    ) -> tuple[ir.Value, AdamSlots]:
        """Return the new value and the new moments."""
        b = given.b
        value, new = super().update(given, shared, slots)
        if not self.variant(given.variable):
            return value, new
        return b.sub(value, b.mul(given.value, shared.decay)), new


class AdamW(Adam):
    """Adam with decoupled weight decay; see `AdamWRule`, and `Adam` for its hyperparameters.

    Attributes:
        weight_decay: The part of a weight that is lost per step at a learning rate of 1; at
            least 0.
        exclude_from_weight_decay: Regular expressions; variables in whose name one occurs do not
            decay. Usual for biases and normalization.

    Examples:
        >>> rate = amp.optimizers.CosineSchedule(0.001, decay_steps=1000)
        >>> optimizer = amp.optimizers.AdamW(rate, weight_decay=0.01)
    """

    _rule = AdamWRule

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
        exclude_from_weight_decay: Iterable[str] = (),
        use_locking: bool = False,
        name: str = "AdamW",
        **clipping: Any,
    ) -> None:
        """Make the rule; `Optimizer` says what every optimizer takes and raises."""
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name, **clipping)
        self.rule = replace(
            self.rule,
            weight_decay=weight_decay,  # pyright: ignore[reportCallIssue] the rule of `_rule` has both
            exclude_from_weight_decay=exclude_from_weight_decay,
        )


class LAMBScalars(NamedTuple):
    """What the updates of all variables share: shape (), the type that updates have."""

    learning_rate: ir.Value
    first: ir.Value  # sqrt(1 - beta2^t) / (1 - beta1^t)
    epsilon: ir.Value  # see AdamRule.scaled_epsilon


@dataclass(frozen=True, kw_only=True)
class LAMBRule(DecayingAdamRule):
    """Adam's direction, scaled per variable to the norm of the variable.

        r = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay * w
        w -= learning_rate * |w| / |r| * r                  with |w| / |r| = 1 where either is 0

    Y. You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2020,
    https://arxiv.org/abs/1904.00962 (Algorithm 2, phi the identity). The norms run over the whole
    variable, so that a sparse gradient is made dense.
    """

    def shared(self, given: SharedInput) -> LAMBScalars:
        """Return LAMBScalars."""
        b, others, dtype = given.b, given.others, given.dtype
        second = b.sqrt(b.sub(1.0, others[BETA2_POWER]))
        first = b.div(second, b.sub(1.0, others[BETA1_POWER]))
        epsilon = self.scaled_epsilon(b, second)
        return LAMBScalars(given.rate, b.cast(first, dtype), b.cast(epsilon, dtype))

    def update(
        self, given: UpdateInput, shared: Any, slots: AdamSlots
    ) -> tuple[ir.Value, AdamSlots]:
        """Return the new value and the new moments."""
        b, (quotient, new) = given.b, self.direction(given, slots, shared.epsilon)
        direction = b.mul(quotient, shared.first)
        if self.variant(given.variable):
            direction = b.add(direction, b.mul(given.value, self.weight_decay))
        scale = b.mul(shared.learning_rate, _ratio(b, given.value, direction))
        return b.sub(given.value, b.mul(direction, scale)), new


class LAMB(AdamW):
    """Adam's direction, scaled to the norm of the variable; see `LAMBRule` and `AdamW`."""

    _rule = LAMBRule

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay: float = 0.01,
        exclude_from_weight_decay: Iterable[str] = (),
        use_locking: bool = False,
        name: str = "LAMB",
        **clipping: Any,
    ) -> None:
        """Make the rule; `AdamW` says what the arguments are."""
        decay = weight_decay, exclude_from_weight_decay
        super().__init__(
            learning_rate, beta1, beta2, epsilon, *decay, use_locking, name, **clipping
        )


def _ratio(b: Builder, value: ir.Value, direction: ir.Value) -> ir.Value:
    """Return |value| / |direction|; 1 where either is 0."""
    above, below = (
        b.sqrt(b.reduce("ReduceSumSquare", x, None, keepdims=False)) for x in (value, direction)
    )
    either = b.equal(b.mul(b.sign(above), b.sign(below)), 0.0)
    return b.where(either, 1.0, b.div(above, b.where(either, 1.0, below)))
