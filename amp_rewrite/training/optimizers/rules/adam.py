"""Adam, and what those that decay weights as well make of it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.graph.training_graph import State
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.config import flat
from amp_rewrite.training.optimizers.learning_rate import Rate
from amp_rewrite.training.optimizers.optimizer import Optimizer
from amp_rewrite.training.optimizers.update_rule import (
    Hyperparameter,
    SharedInput,
    UpdateInput,
    UpdateRule,
    checked,
)

BETA1_POWER, BETA2_POWER = "beta1_power", "beta2_power"

_HALF = 0.5
"""The decay from which it is taken out of a moment: what is added is divided by it."""


class AdamSlots(NamedTuple):
    """The slots of Adam and its relatives."""

    m: ir.Value  # first moment: the variable's shape, float32 or float64
    v: ir.Value  # second moment: the same


class AdamScalars(NamedTuple):
    """What the updates of all variables share: shape (), the type that updates have."""

    rate: ir.Value  # learning_rate * sqrt(1 - beta2^t) / (1 - beta1^t)
    epsilon: ir.Value  # epsilon * sqrt(1 - beta2^t)


@dataclass(frozen=True, kw_only=True)
class AdamRule(UpdateRule):
    """Adaptive moment estimation, with the corrections of the paper's Algorithm 1.

        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g^2
        w -= learning_rate * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)

    D. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization", 2015,
    https://arxiv.org/abs/1412.6980. The corrections are taken out of the quotient, where they are
    scalars; powers of beta are kept in float64, for 1 - beta2^t loses 3 digits in float32.

    The moments of rows without a gradient decay and move these rows, so that a sparse gradient
    changes all rows, exactly as the dense one would. With lazy=True only the touched rows of w, m
    and v change, as in PyTorch's SparseAdam.
    """

    slots = AdamSlots

    beta1: float = checked(check.number, high=1)
    beta2: float = checked(check.number, high=1)
    epsilon: float = checked(check.number, above=True)
    lazy: bool = checked(check.flag)

    @property
    def touches_rows_only(self) -> bool:
        """Whether it is lazy."""
        return self.lazy

    @property
    def gradient_factor(self) -> float:
        """The root of what g^2 is multiplied by before v is added."""
        return math.sqrt((1 - self.beta2) / _taken_out(self.beta2))

    def initial_others(self) -> dict[str, np.ndarray]:
        """Return the powers of both betas in the first step: float64."""
        return {BETA1_POWER: np.array(self.beta1), BETA2_POWER: np.array(self.beta2)}

    def advance(self, given: SharedInput) -> dict[str, ir.Value]:
        """Return the powers of both betas in the next step."""
        b, others = given.b, given.others
        return {
            BETA1_POWER: b.mul(others[BETA1_POWER], self.beta1),
            BETA2_POWER: b.mul(others[BETA2_POWER], self.beta2),
        }

    def shared(self, given: SharedInput) -> Any:
        """Return AdamScalars."""
        b, others = given.b, given.others
        first = b.sub(1.0, others[BETA1_POWER])
        second = b.sqrt(b.sub(1.0, others[BETA2_POWER]))
        rate = b.div(b.mul(b.cast(given.rate, ir.DataType.DOUBLE), second), first)
        epsilon = self.scaled_epsilon(b, second)
        return AdamScalars(b.cast(rate, given.dtype), b.cast(epsilon, given.dtype))

    def scaled_epsilon(self, b: Builder, second: ir.Value) -> ir.Value:
        """Return what is added to sqrt(v): epsilon * sqrt(1 - beta2^t), float64, shape ()."""
        return b.mul(second, self.epsilon)

    def direction(
        self, given: UpdateInput, slots: AdamSlots, epsilon: ir.Value
    ) -> tuple[ir.Value, AdamSlots]:
        """Return m / (sqrt(v) + epsilon), and the next slots.

        Few tensors in the variable's shape exist at a time: with its decay taken out, each sum can
        be made in place of its first term; and ONNX Runtime, which orders nodes from the results
        backwards, is done with m before it begins with v if the nodes of m come last.
        """
        b, factor = given.b, self.gradient_factor
        gradient = given.gradient_times(factor)
        v = _decayed(b, slots.v, self.beta2, b.square(gradient))
        root = b.add(b.sqrt(v), epsilon)
        share = (1 - self.beta1) / _taken_out(self.beta1) / factor
        m = _decayed(b, slots.m, self.beta1, b.mul(gradient, share))
        return b.div(m, root), AdamSlots(m, v)

    def update(
        self, given: UpdateInput, shared: AdamScalars, slots: AdamSlots
    ) -> tuple[ir.Value, AdamSlots]:
        """Return the new value and the new moments."""
        b, (direction, new) = given.b, self.direction(given, slots, shared.epsilon)
        return b.sub(given.value, b.mul(direction, shared.rate)), new


@dataclass(frozen=True, kw_only=True)
class EpsilonHatAdamRule(AdamRule):
    """Adam with the epsilon hat of the paper's section 2, as TensorFlow and Keras compute it.

        w -= learning_rate * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon)

    The same as `AdamRule` but for epsilon, which is not multiplied by sqrt(1 - beta2^t)
    (https://www.tensorflow.org/api_docs/python/tf/raw_ops/ApplyAdam).
    """

    def scaled_epsilon(self, b: Builder, second: ir.Value) -> ir.Value:
        """Return epsilon as it is: float64, shape ()."""
        del second
        return b.constant(np.array(self.epsilon))


class Adam(Optimizer):
    """Adaptive moment estimation; see `AdamRule`.

    Attributes:
        beta1: Decay of the first moment: at least 0, below 1.
        beta2: Decay of the second moment: at least 0, below 1.
        epsilon: Added to the root of the second moment; above 0.
        lazy: Let a sparse gradient change the touched rows only.
        epsilon_hat: Use TensorFlow's and Keras's formula, see `EpsilonHatAdamRule`.

    Examples:
        >>> model = amp.load("model.onnx")
        >>> loss = amp.losses.softmax_cross_entropy(model, "logits", "labels")
        >>> train_op = amp.optimizers.Adam(0.001).minimize(loss)
    """

    beta1 = Hyperparameter[float]()
    beta2 = Hyperparameter[float]()
    epsilon = Hyperparameter[float]()
    lazy = Hyperparameter[bool]()

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
        *,
        lazy: bool = False,
        epsilon_hat: bool = False,
        **clipping: Any,
    ) -> None:
        """Make the rule; `Optimizer` says what every optimizer takes and raises."""
        kind = _kind(epsilon_hat)
        rule = kind(beta1=beta1, beta2=beta2, epsilon=epsilon, lazy=lazy)
        super().__init__(use_locking, name, rule=rule, learning_rate=learning_rate, **clipping)

    @property
    def epsilon_hat(self) -> bool:
        """Whether epsilon is added to sqrt(v) as it is."""
        return isinstance(self.rule, EpsilonHatAdamRule)

    @epsilon_hat.setter
    def epsilon_hat(self, value: bool) -> None:
        kind = _kind(value)
        self.rule = kind(beta1=self.beta1, beta2=self.beta2, epsilon=self.epsilon, lazy=self.lazy)

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Return an optimizer made from what `get_config` returned; see `Optimizer.from_config`.

        A configuration of Keras's, whose betas are `beta_1` and `beta_2`, makes Keras's formula.
        """
        settings = flat(config)
        if isinstance(settings, Mapping) and "beta_1" in settings and cls is Adam:
            settings = {"epsilon_hat": True, **settings}
        return super().from_config(settings, custom_objects)


def _kind(epsilon_hat: object) -> type[AdamRule]:
    return EpsilonHatAdamRule if check.flag("epsilon_hat", epsilon_hat) else AdamRule


def _taken_out(decay: float) -> float:
    """Return the factor that a moment is computed without at first."""
    return 1.0 if decay < _HALF else decay


def _decayed(b: Builder, moment: ir.Value, decay: float, added: ir.Value) -> ir.Value:
    """Return decay * moment + what is added, which comes divided by `_taken_out(decay)`."""
    if decay < _HALF:
        return b.add(b.mul(moment, decay), added)
    return b.mul(b.add(added, moment), decay)


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
            f"{name} must be a list of regular expressions",
            found=repr(expressions),
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

    weight_decay: float = checked(check.number)
    exclude_from_weight_decay: Iterable[str] = checked(_patterns)

    def variant(self, variable: State) -> bool:
        """Return whether a variable decays."""
        excluded = (re.search(e, variable.name) for e in self.exclude_from_weight_decay)
        return bool(self.weight_decay) and not any(excluded)


class ExcludedNames(tuple[str, ...]):  # noqa: SLOT001 a tuple can have no slots
    """Regular expressions for names of variables whose weights do not decay."""

    optimizer: DecayingAdam

    @classmethod
    def of(cls, optimizer: DecayingAdam, expressions: Iterable[str]) -> Self:
        """Return the expressions of an optimizer."""
        patterns = cls(expressions)
        patterns.optimizer = optimizer
        return patterns

    def __call__(
        self, var_list: Iterable[Any] | None = None, var_names: Iterable[str] | None = None
    ) -> None:
        """Add variables: Keras's `exclude_from_weight_decay`.

        Args:
            var_list: Variables: states, values or names.
            var_names: Regular expressions; a variable in whose name one occurs does not decay.

        Raises:
            OptimizerTypeError: They are not lists.
            OptimizerValueError: One is not a regular expression, or a step is built.
        """
        variables = () if var_list is None else check.listed(var_list, "variables")
        names = [v if isinstance(v, str) else str(v.name) for v in variables]
        exact = [f"^{re.escape(name)}$" for name in names]
        added = _patterns("var_names", () if var_names is None else var_names)
        self.optimizer.exclude_from_weight_decay = (*self, *exact, *added)


def decaying(
    adam: Adam, kind: type[DecayingAdamRule], weight_decay: float, excluded: Iterable[str]
) -> DecayingAdamRule:
    """Return a rule with weight decay and the hyperparameters of an optimizer's.

    Raises:
        OptimizerTypeError: The optimizer has the epsilon hat, which these rules have not.
        OptimizerValueError: A hyperparameter is impossible.
    """
    if adam.epsilon_hat:
        raise OptimizerTypeError(
            "unknown argument", where=type(adam).__name__, found="epsilon_hat=True"
        )
    return kind(**vars(adam.rule), weight_decay=weight_decay, exclude_from_weight_decay=excluded)


class DecayingAdam(Adam):
    """An optimizer with such a rule."""

    weight_decay = Hyperparameter[float]()

    @property
    def exclude_from_weight_decay(self) -> ExcludedNames:
        """The regular expressions; a call adds to them, as Keras's method does."""
        assert isinstance(self.rule, DecayingAdamRule), "children are made with one"
        return ExcludedNames.of(self, self.rule.exclude_from_weight_decay)

    @exclude_from_weight_decay.setter
    def exclude_from_weight_decay(self, value: Iterable[str]) -> None:
        assert isinstance(self.rule, DecayingAdamRule), "children are made with one"
        self.rule = replace(self.rule, exclude_from_weight_decay=value)
