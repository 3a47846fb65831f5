"""An optimizer whose loss is scaled, and whose updates are skipped if gradients overflow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import onnx_ir as ir

from amp_rewrite.errors import LossScaleTypeError, LossScaleValueError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.graph.metadata_keys import SCALED_KEY
from amp_rewrite.graph.step_part import Part, part_in
from amp_rewrite.training.graph.training_graph import GraphValue, State, TrainingGraph
from amp_rewrite.training.loss_scaling.gradients import (
    finite_and_norm,
    scaled_seed,
    unscaled,
    without_repeated_indices,
)
from amp_rewrite.training.loss_scaling.loss_scale import (
    DynamicLossScale,
    FixedLossScale,
    LossScale,
    LossScaleState,
    get,
    restored,
    serialize,
)
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers import registry
from amp_rewrite.training.optimizers.apply_updates import check_pairs
from amp_rewrite.training.optimizers.compute_gradients import (
    Loss,
    check_float,
    check_loss,
)
from amp_rewrite.training.optimizers.conditional_update import check_mode, conditional
from amp_rewrite.training.optimizers.config import (
    KERAS,
    LIMITS,
    arguments,
    custom_classes,
    flat,
    mapping,
    supported,
)
from amp_rewrite.training.optimizers.gradient import Gradient, graph_of, unwrap, wrap
from amp_rewrite.training.optimizers.optimizer import Optimizer, overrides
from amp_rewrite.training.optimizers.slots import Variable
from amp_rewrite.training.optimizers.train_op import FINITE, NORM, TrainOp
from amp_rewrite.training.optimizers.wrapper import OptimizerWrapper, unscalable

_DYNAMIC = "dynamic"


class LossScaleOptimizer(OptimizerWrapper):
    """Scales the loss, unscales gradients, and applies an optimizer if they are finite.

    The loss scale multiplies the seed of the backward pass, in float32, so that no gradient
    underflows in 16 bits; gradients are multiplied by its reciprocal in float32. If one of them is
    not finite, the step is skipped: only the loss scale and the Dropout counter advance, so that a
    retried batch gets a new mask (P. Micikevicius et al., "Mixed Precision Training", 2018,
    https://arxiv.org/abs/1710.03740). A FixedLossScale stays when it skips a step; an
    UncheckedLossScale applies every step.

    It has two forms. In TensorFlow's experimental form, `LossScaleOptimizer(optimizer,
    loss_scale)`, the optimizer may not clip. The form of TensorFlow 2.4 to Keras 3 names
    `inner_optimizer=`, `dynamic=`, `initial_scale=` or `dynamic_growth_steps=`, or has True or
    False in the second place. Its optimizer may clip: unscaled gradients, after the finite check.

    Every other attribute is that of the wrapped optimizer.

    Examples:
        >>> model = amp.load("model.onnx")
        >>> loss = amp.losses.softmax_cross_entropy(model, "logits", "labels")
        >>> optimizer = amp.LossScaleOptimizer(amp.optimizers.Momentum(0.1, 0.9))
        >>> step = amp.build_step(optimizer.minimize(loss), precision="float16")
    """

    scales_loss = True

    def __init__(
        self,
        optimizer: Optimizer | None = None,
        loss_scale: Any = _DYNAMIC,
        *,
        conditional: str = "if",
        inner_optimizer: Optimizer | None = None,
        dynamic: bool | None = None,
        initial_scale: float | None = None,
        dynamic_growth_steps: int | None = None,
        name: str | None = None,
    ) -> None:
        """Wrap an optimizer.

        Args:
            optimizer: Any optimizer; in the experimental form one that does not clip.
            loss_scale: A LossScale, or an argument of `loss_scaling.get`. Optimizers with one
                LossScale share its present value. True or False is `dynamic`.
            conditional: "if" puts the update into the then-branch of one If; "select" adds a Where
                per state.
            inner_optimizer: The name of `optimizer` in TensorFlow 2.4's form.
            dynamic: Whether the scale follows the gradients; False needs an `initial_scale`.
            initial_scale: The scale of the first step; by default 2^15.
            dynamic_growth_steps: The number of finite steps until it grows; by default 2000.
            name: The optimizer's name; by default that of the optimizer inside.

        Raises:
            LossScaleValueError: The optimizer cannot be wrapped, there is no loss scale, or
                arguments exclude each other.
            OptionError: `conditional` is neither.
        """
        if isinstance(loss_scale, bool) and dynamic is None:
            loss_scale, dynamic = _DYNAMIC, loss_scale
        if optimizer is not None and inner_optimizer is not None:
            raise LossScaleValueError(
                "two optimizers",
                where="LossScaleOptimizer",
                found="optimizer and inner_optimizer",
                expected="one",
            )
        form = (dynamic, initial_scale, dynamic_growth_steps)
        named = any(part is not None for part in (*form, inner_optimizer))
        inner = inner_optimizer if optimizer is None else optimizer
        super().__init__(_check_optimizer(inner, clips=named))
        self._conditional, self._may_clip = check_mode(conditional), named
        if named and not (isinstance(loss_scale, str) and loss_scale == _DYNAMIC):
            raise LossScaleValueError(
                "two ways to say the loss scale",
                where="LossScaleOptimizer",
                found=f"loss_scale={loss_scale!r} beside arguments of TensorFlow 2.4's form",
                remedy="pass dynamic, initial_scale and dynamic_growth_steps, or loss_scale",
            )
        scale = _described(*form) if named else get(loss_scale)
        if scale is None:
            raise LossScaleValueError(
                "loss_scale cannot be None",
                where="LossScaleOptimizer",
                expected="a number, 'dynamic' or a LossScale",
                remedy="use the optimizer itself to train without a loss scale",
            )
        self._loss_scale: LossScale = scale
        self._name = None if name is None else check.optimizer_name(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; the experimental form refuses a limit to clip gradients to."""
        super().__setattr__(name, value)  # refuses it once a step is built
        if vars(self).get("_may_clip"):
            return
        try:
            _check_limit(self, name, value)
        except LossScaleValueError:
            super().__setattr__(name, None)
            raise

    @property
    def name(self) -> str:
        """Its own name, or that of the optimizer inside."""
        return self.inner_optimizer.get_name() if self._name is None else self._name

    @property
    def dynamic(self) -> bool:
        """Whether the loss scale follows the gradients."""
        return not isinstance(self.loss_scale, FixedLossScale)

    @property
    def initial_scale(self) -> float:
        """The loss scale of the first step."""
        return self.loss_scale.initial

    @property
    def dynamic_growth_steps(self) -> int | None:
        """The number of finite steps until the scale grows; None if it does not."""
        return getattr(self.loss_scale, "increment_period", None)

    @property
    def dynamic_counter(self) -> int | None:
        """The number of finite steps since the scale changed; None if it does not change."""
        return self.loss_scale.good_steps if self.dynamic else None

    @property
    def loss_scale(self) -> LossScale:
        """The loss scale."""
        return self._loss_scale

    @property
    def conditional(self) -> str:
        """The way to make updates conditional: "if" or "select"."""
        return self._conditional

    @property
    def current_loss_scale(self) -> float:
        """The present loss scale: the running session's if there is one."""
        return self.loss_scale.current

    def get_scaled_loss(self, loss: Loss) -> Any:
        """Return a floating-point loss times the loss scale; for a callable, a callable."""
        if callable(loss):
            loss_function: Callable[[], GraphValue] = loss
            return lambda: self.get_scaled_loss(loss_function())
        value = check_loss(loss)
        check_float("loss", value.name, value.dtype)
        b, scale = _builder_in(value.graph), self._values(value.graph).current_loss_scale
        scaled = b.mul(value.value, b.cast_like(scale, value.value))
        scaled.meta[SCALED_KEY] = value.value
        return GraphValue(value.graph, scaled)

    def scale_loss(self, loss: Loss) -> Any:
        """Return the loss times the loss scale: Keras 3's name for `get_scaled_loss`."""
        return self.get_scaled_loss(loss)

    def get_unscaled_gradients(self, grads: Iterable[Gradient]) -> list[Any]:
        """Return gradients times the reciprocal of the loss scale, in float32; None stays None.

        Raises:
            OptimizerTypeError: They are not a list of values, IndexedSlices and None.
            LossScaleValueError: Their model is unknown.
        """
        gradients = check.listed(grads, "gradients")
        raw = [None if g is None else unwrap(g) for g in gradients]
        if all(g is None for g in raw):
            return gradients
        graph = graph_of(gradients)
        if graph is None:
            raise LossScaleValueError(
                "the gradients do not tell which model they belong to",
                expected="gradients that compute_gradients returned",
            )
        b = _builder_in(graph)
        reciprocal = b.reciprocal(self._values(graph).current_loss_scale)
        return [None if g is None else wrap(graph, unscaled(b, g, reciprocal)) for g in raw]

    def _gradients_of(
        self, loss: GraphValue, variables: Sequence[Any], grad_loss: GraphValue | None
    ) -> list[tuple[Any, State]]:
        """Return unscaled gradients, computed with a scaled seed."""
        b, scale = _builder_in(loss.graph), self._values(loss.graph).current_loss_scale
        seed = scaled_seed(b, loss, scale, grad_loss)
        pairs = super()._gradients_of(loss, variables, seed)
        gradients = self.get_unscaled_gradients([gradient for gradient, _ in pairs])
        return [(g, variable) for g, (_, variable) in zip(gradients, pairs, strict=True)]

    def get_gradients(self, loss: Loss, params: Iterable[Variable]) -> list[Any]:
        """Return unscaled gradients; a user's own `get_gradients` gets the scaled loss."""
        inner = self.inner_optimizer
        if not overrides(inner, "get_gradients"):
            return Optimizer.get_gradients(self, loss, params)
        value = check_loss(loss)
        scaled = inner.get_gradients(self.get_scaled_loss(value), params)
        value.graph.loss = value  # sessions show the loss unscaled
        return self.get_unscaled_gradients(scaled)

    def apply_reduced(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> TrainOp:
        """Add the finite check, the conditional update, and the update of the loss scale."""
        graph, pairs = check_pairs(grads_and_vars)
        b, scale, present = _builder_in(graph), self.loss_scale, self._values(graph)
        inner = _check_wrapped(self.inner_optimizer, clips=self._may_clip)
        if not scale.checks:
            op = super().apply_reduced(pairs, global_step, name)
            return _with_scale(op, scale, present, present)
        pairs = without_repeated_indices(b, graph, pairs, rows_only=inner.touches_rows_only)
        finite, norm = finite_and_norm(b, [unwrap(g) for g, _ in pairs if g is not None])
        finite.name = graph.free_name(FINITE)
        op = super().apply_reduced(pairs, global_step, name)
        op, following = self._unless_skipped(op, present, finite, norm)
        op = replace(op, fetches={**op.fetches, FINITE: finite, NORM: norm})
        return _with_scale(op, scale, present, following)

    def _unless_skipped(
        self, op: TrainOp, present: LossScaleState, finite: ir.Value, norm: ir.Value
    ) -> tuple[TrainOp, LossScaleState]:
        """Return a step that changes only its loss scale if not `finite`, and the next scale."""
        graph, scale, b = op.graph, self.loss_scale, _builder_in(op.graph)
        applied, skipped = dict(op.updates), {n: s.value for n, s in graph.states.items()}
        names = {field: state.name for field, state in scale.states_in(graph).items()}
        good, bad = scale.applied(b, present), scale.skipped(b, present)
        applied |= {name: getattr(good, field) for field, name in names.items()}
        skipped |= {name: getattr(bad, field) for field, name in names.items()}
        changed = set(op.updates.values())
        updates = conditional(
            b,
            finite,
            applied,
            skipped,
            self.conditional,
            keep={norm, *(value for value in op.fetches.values() if value not in changed)},
            movable=lambda node: part_in(node.metadata_props) in (Part.UPDATE, Part.LOSS_SCALE),
        )
        graph.forget_shapes()
        for name in names.values():
            if updates[name].producer() is not None:
                updates[name].name = graph.free_name(f"{name}:next")
        now = {op.updates[key]: value for key, value in updates.items() if key in op.updates}
        fetches = {key: now.get(value, value) for key, value in op.fetches.items()}
        following = present._replace(**{field: updates[name] for field, name in names.items()})
        return replace(op, updates=updates, fetches=fetches), following

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an optimizer like this one, in the same form."""
        config = {**super().get_config(), "conditional": self.conditional}
        if not self._may_clip:
            return {**config, "loss_scale": serialize(self.loss_scale)}
        return {
            "inner_optimizer": config.pop(self.inner_argument),
            **config,
            "dynamic": self.dynamic,
            "initial_scale": self.initial_scale,
            "dynamic_growth_steps": self.dynamic_growth_steps,
            "name": self._name,
        }

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, type[Any]] | None = None
    ) -> Self:
        """Return an optimizer made from what `get_config` returned, here or in Keras.

        Args:
            config: The configuration.
            custom_objects: See `optimizers.get`.

        Raises:
            OptimizerValueError: The class of the inner optimizer is unknown.
            LossScaleValueError: The class of the loss scale is unknown.
            LossScaleTypeError: `config` is no mapping, or a key is missing or unknown.
        """
        settings = mapping(flat(config), cls.__name__, LossScaleTypeError)
        custom = custom_classes(custom_objects, LossScaleTypeError)
        inner = "inner_optimizer" if "inner_optimizer" in settings else "optimizer"
        if inner == "inner_optimizer":
            given = supported(cls.__name__, settings).items()
            settings = {k: v for k, v in given if v is not None and k not in KERAS}
        settings = arguments(cls, settings, LossScaleTypeError)
        for key in ("optimizer", "loss_scale") if inner == "optimizer" else ():
            if key not in settings:
                raise LossScaleTypeError(
                    f"the configuration has no key {key!r}",
                    where=cls.__name__,
                    remedy="pass what get_config returned",
                )
        if "loss_scale" in settings:
            settings["loss_scale"] = restored(settings["loss_scale"], custom)
        settings[inner] = registry.get(settings[inner], custom_objects=custom)
        return cls(**settings)

    def __repr__(self) -> str:
        """Return the call that makes an optimizer like this one."""
        inner, mode = self.inner_optimizer, self.conditional
        return f"{type(self).__name__}({inner!r}, {self.loss_scale!r}, conditional={mode!r})"

    def _values(self, graph: TrainingGraph) -> LossScaleState:
        """Return the state of the loss scale in a graph: values, some of which are constants."""
        states, initial = self.loss_scale.states_in(graph), self.loss_scale.initial_state()
        b = _builder_in(graph)
        return LossScaleState(
            *(
                states[field].value if field in states else b.constant(array)
                for field, array in initial._asdict().items()
            )
        )


def _described(
    dynamic: bool | None, initial_scale: float | None, growth_steps: int | None
) -> LossScale:
    """Return the loss scale that arguments of TensorFlow 2.4 to Keras 3 describe."""
    refused = partial(LossScaleValueError, where="LossScaleOptimizer")
    if dynamic is not None and not isinstance(dynamic, bool):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise refused("dynamic must be True or False", found=repr(dynamic))
    if dynamic is not False:
        given = {"initial_loss_scale": initial_scale, "increment_period": growth_steps}
        options: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
        return DynamicLossScale(**options)
    if initial_scale is None:
        raise refused(
            "initial_scale must be given if dynamic is False",
            remedy="pass initial_scale=1024, for example",
        )
    if growth_steps is not None:
        raise refused(
            "dynamic_growth_steps must be None if dynamic is False", found=repr(growth_steps)
        )
    return FixedLossScale(initial_scale)


def _builder_in(graph: TrainingGraph) -> Builder:
    return graph.scoped("loss_scale", Part.LOSS_SCALE)


def _check_optimizer(optimizer: object, *, clips: bool) -> Optimizer:
    if not isinstance(optimizer, Optimizer):
        raise LossScaleValueError(
            '"optimizer" must be an instance of amp_rewrite.optimizers.Optimizer',
            found="None" if optimizer is None else type(optimizer).__name__,
            remedy="pass an optimizer such as amp_rewrite.optimizers.Adam(1e-3)",
        )
    if optimizer.scales_loss:
        raise LossScaleValueError(
            '"optimizer" must not already be an instance of a LossScaleOptimizer',
            where=optimizer.get_name(),
            remedy="wrap an optimizer once: enable_mixed_precision_graph_rewrite does it too",
        )
    return _check_wrapped(optimizer, clips=clips)


def _check_wrapped(optimizer: Optimizer, *, clips: bool) -> Optimizer:
    """Return an optimizer that a loss scale can be put around; `clips` allows it to clip."""
    for key in () if clips else LIMITS:
        _check_limit(optimizer, key, getattr(optimizer, key))
    inside: Optimizer | None = optimizer
    while inside is not None:
        if not inside.supports_loss_scaling:
            raise unscalable(inside, type(inside), LossScaleValueError)
        inside = inside.inner_optimizer if isinstance(inside, OptimizerWrapper) else None
    return optimizer


def _check_limit(optimizer: Optimizer, name: str, value: object) -> None:
    if name in LIMITS and value is not None:
        raise LossScaleValueError(
            f"LossScaleOptimizer does not support wrapping optimizers with a {name}",
            where=optimizer.get_name(),
            found=f"{name}={value}",
            remedy="pass it as inner_optimizer=, as in TensorFlow 2.4, which clips unscaled "
            "gradients; or clip between compute_gradients and apply_gradients",
        )


MixedPrecisionLossScaleOptimizer = LossScaleOptimizer
"""The name of version 1."""


def _with_scale(
    op: TrainOp, scale: LossScale, present: LossScaleState, following: LossScaleState
) -> TrainOp:
    """Return a step with the fetches of its scale and of the counters after it; loss unscaled."""
    shown = {key: value.meta.get(SCALED_KEY, value) for key, value in op.fetches.items()}
    shown |= {
        "loss_scale": present.current_loss_scale,
        "good_steps": following.good_steps,
        "skipped_steps": following.skipped_steps,
        "consecutive_skips": following.consecutive_skips,
    }
    return replace(op, fetches=shown, loss_scale=serialize(scale))
