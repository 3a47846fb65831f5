"""A loss scale that never changes."""

from __future__ import annotations

from typing import Any

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import LossScaleValueError
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.loss_scaling.loss_scale import LossScale, LossScaleState


class FixedLossScale(LossScale):
    """One scale for every step; every update is applied, and no gradient is checked.

    Examples:
        >>> optimizer = amp.optimizers.GradientDescent(0.1)
        >>> scaled = amp.LossScaleOptimizer(optimizer, amp.FixedLossScale(128.0))
    """

    def __init__(self, loss_scale_value: float) -> None:
        """Keep the scale.

        Args:
            loss_scale_value: At least 1; a Python int or float.

        Raises:
            LossScaleValueError: It is something else.
        """
        value: Any = loss_scale_value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise LossScaleValueError(
                "loss_scale_value must be a Python int or float",
                where="FixedLossScale",
                found=repr(value),
                remedy="pass float(value)",
            )
        if not value >= 1:
            raise LossScaleValueError(
                "loss_scale_value must be at least 1", where="FixedLossScale", found=value
            )
        if value > FLOAT32.max:
            raise LossScaleValueError(
                "loss_scale_value must be finite in float32",
                where="FixedLossScale",
                found=value,
                expected=f"at most {FLOAT32.max:g}",
            )
        self.loss_scale_value = float(value)

    @property
    def initial(self) -> float:
        """The scale."""
        return self.loss_scale_value

    @property
    def checks(self) -> bool:
        """False: every step is applied."""
        return False

    def applied(self, b: Builder, state: LossScaleState) -> LossScaleState:
        """Return the state as it is."""
        del b
        return state

    def skipped(self, b: Builder, state: LossScaleState) -> LossScaleState:
        """Return the state as it is; no step is skipped."""
        del b
        return state
