"""What optimizers with loss scales have in common, and which optimizers they wrap."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import onnx_ir as ir

from amp_rewrite.errors import LossScaleTypeError, LossScaleValueError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.graph.step_part import Part
from amp_rewrite.training.graph.training_graph import TrainingGraph
from amp_rewrite.training.loss_scaling.gradients import (
    finite_and_norm,
    finite_by_loss,
    without_repeated_indices,
)
from amp_rewrite.training.loss_scaling.loss_scale import LossScale
from amp_rewrite.training.loss_scaling.skipped_step import (
    ScaledLoss,
    always_applied,
    present_state,
    skipped_unless_finite,
)
from amp_rewrite.training.optimizers import registry
from amp_rewrite.training.optimizers.apply_updates import check_pairs
from amp_rewrite.training.optimizers.clipping import LIMITS
from amp_rewrite.training.optimizers.conditional_update import check_mode
from amp_rewrite.training.optimizers.config import arguments, custom_classes
from amp_rewrite.training.optimizers.gradient import Gradient, unwrap
from amp_rewrite.training.optimizers.optimizer import Optimizer
from amp_rewrite.training.optimizers.slots import Variable
from amp_rewrite.training.optimizers.train_op import TrainOp
from amp_rewrite.training.optimizers.wrapper import OptimizerWrapper, unscalable

_SCOPE = "loss_scale"


class ScalingOptimizer(OptimizerWrapper):
    """An optimizer around another one whose loss, or each of whose losses, is scaled."""

    scales_loss = True

    _scales_argument: ClassVar[str]
    """The argument of the constructor that is the loss scale, or are the loss scales."""

    _tells_losses_apart: ClassVar[bool] = False
    """Whether the scale of a loss moves by the gradients of this loss alone."""

    def __init__(
        self, optimizer: Optimizer | None, conditional: str, *, clips: bool = False
    ) -> None:
        """Wrap an optimizer; see `LossScaleOptimizer`.

        Args:
            optimizer: The optimizer.
            conditional: "if" or "select".
            clips: Whether the optimizer inside may clip gradients, which it does after the finite
                check, to unscaled gradients.
        """
        super().__init__(check_optimizer(optimizer, clips=clips))
        self._conditional = check_mode(conditional)
        self._may_clip = clips

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute as `OptimizerWrapper` does; refuse a limit to clip gradients to.

        Raises:
            LossScaleValueError: It is one.
        """
        super().__setattr__(name, value)  # which refuses it once a step is built
        if vars(self).get("_may_clip"):
            return
        try:
            check_limit(self, name, value)
        except LossScaleValueError:
            super().__setattr__(name, None)
            raise

    @property
    def may_clip(self) -> bool:
        """Whether the optimizer inside may clip gradients."""
        return self._may_clip

    @property
    def conditional(self) -> str:
        """How updates are made conditional: "if" or "select"."""
        return self._conditional

    @property
    @abstractmethod
    def _scales(self) -> tuple[LossScale, ...]:
        """The loss scale of each loss."""

    def apply_reduced(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> TrainOp:
        """Add the finite checks, the conditional update, and the updates of the loss scales."""
        graph, pairs = check_pairs(grads_and_vars)
        b, scales = builder_in(graph), self._scales
        states = [present_state(b, graph, scale) for scale in scales]
        inner = check_wrapped(self.inner_optimizer, clips=self.may_clip)
        if not any(scale.checks for scale in scales):
            op = super().apply_reduced(pairs, global_step, name)
            return always_applied(
                op, [ScaledLoss(*each) for each in zip(scales, states, strict=True)]
            )
        pairs = without_repeated_indices(b, graph, pairs, rows_only=inner.touches_rows_only)
        raw = [unwrap(g) for g, _ in pairs if g is not None]
        own = finite_by_loss(b, raw, len(scales)) if self._tells_losses_apart else []
        finite, norm = finite_and_norm(b, raw)
        finite.name = graph.free_name("grads_finite")
        verdicts = list(zip(own, _spared(b, own), strict=True)) or [(None, None)]
        losses = [
            ScaledLoss(scale, state, *verdict)
            for scale, state, verdict in zip(scales, states, verdicts, strict=True)
        ]
        op = super().apply_reduced(pairs, global_step, name)
        return skipped_unless_finite(b, op, losses, finite, norm, self.conditional)

    def get_config(self) -> dict[str, Any]:
        """Return what `from_config` makes an optimizer like this one from."""
        return {**super().get_config(), "conditional": self.conditional}

    @classmethod
    @abstractmethod
    def _scales_from(cls, config: Any, custom_objects: Mapping[str, type[Any]]) -> Any:
        """Return the loss scale, or loss scales, of a configuration."""

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, type[Any]] | None = None
    ) -> Self:
        """Return an optimizer made from what `get_config` returned.

        Args:
            config: Is not changed.
            custom_objects: Name -> class of optimizers, schedules and loss scales that are not this
                package's.

        Raises:
            OptimizerValueError: The class of the inner optimizer is unknown.
            LossScaleValueError: The class of a loss scale is unknown.
            LossScaleTypeError: `config` is no mapping, or a key is missing or unknown.
        """
        needed = (cls.inner_argument, cls._scales_argument)
        settings = arguments(cls, config, LossScaleTypeError, needed=needed)
        custom = custom_classes(custom_objects, LossScaleTypeError)
        optimizer = registry.get(settings.pop("optimizer"), custom_objects=custom)
        scales = cls._scales_from(settings.pop(cls._scales_argument), custom)
        return cls(optimizer, scales, **settings)

    def __repr__(self) -> str:
        """Return what is wrapped, and how."""
        scales = getattr(self, self._scales_argument)
        shown = list(scales) if isinstance(scales, tuple) else scales
        inner, mode = self.inner_optimizer, self.conditional
        return f"{type(self).__name__}({inner!r}, {shown!r}, conditional={mode!r})"


def _spared(b: Builder, finite: Sequence[ir.Value]) -> list[ir.Value]:
    """Return for each loss whether its gradients are finite, while those of another are not."""
    if not finite:
        return []
    every = finite[0]
    for own in finite[1:]:
        every = b.logical_and(every, own)
    other = b.logical_not(every)
    return [b.logical_and(own, other) for own in finite]


def builder_in(graph: TrainingGraph) -> Builder:
    """Return the builder of the nodes that scale and unscale."""
    return graph.scoped(_SCOPE, Part.LOSS_SCALE)


def check_optimizer(optimizer: object, *, clips: bool = False) -> Optimizer:
    """Return an optimizer that can be wrapped; `clips` lets it clip gradients.

    Raises:
        LossScaleValueError: It is not an optimizer; it or one inside it scales the loss already,
            clips gradients, which would be done before the finite check sees them, or reduces
            gradients in a way that a loss scale would change.
    """
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
    return check_wrapped(optimizer, clips=clips)


def check_wrapped(optimizer: Optimizer, *, clips: bool = False) -> Optimizer:
    """Return an optimizer that a loss scale can be put around, as it is now.

    Args:
        optimizer: The optimizer.
        clips: Whether it may clip gradients.

    Raises:
        LossScaleValueError: It clips gradients; or it or one inside it is a collective that a loss
            scale would change.
    """
    for key in () if clips else LIMITS:
        check_limit(optimizer, key, getattr(optimizer, key))
    inside: Optimizer | None = optimizer
    while inside is not None:
        if not inside.supports_loss_scaling:
            raise unscalable(inside, type(inside), LossScaleValueError)
        inside = inside.inner_optimizer if isinstance(inside, OptimizerWrapper) else None
    return optimizer


def check_limit(optimizer: Optimizer, name: str, value: object) -> None:
    """Refuse to clip gradients before the finite check sees them."""
    if name in LIMITS and value is not None:
        raise LossScaleValueError(
            f"LossScaleOptimizer does not support wrapping optimizers with a {name}",
            where=optimizer.get_name(),
            found=f"{name}={value}",
            remedy="pass it as inner_optimizer=, as in TensorFlow 2.4, which clips unscaled "
            "gradients; or clip between compute_gradients and apply_gradients",
        )


def check_scale(loss_scale: LossScale | None) -> LossScale:
    """Return a loss scale that is one."""
    if loss_scale is None:
        raise LossScaleValueError(
            "loss_scale cannot be None",
            where="LossScaleOptimizer",
            expected="a number, 'dynamic' or a LossScale",
            remedy="use the optimizer itself to train without a loss scale",
        )
    return loss_scale
