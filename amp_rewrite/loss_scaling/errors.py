"""Errors of loss scaling."""

from __future__ import annotations

from collections.abc import Sequence

from amp_rewrite.errors import AmpError

_SHOWN = 8


class LossScaleValueError(AmpError, ValueError):
    """A loss scale, or an optimizer that is to be wrapped, is impossible."""


class LossScaleTypeError(AmpError, TypeError):
    """Loss scaling is given an object of a kind that it does not take."""


class LossScaleError(AmpError):
    """The loss scale has collapsed: too many steps in a row were skipped at its floor.

    Attributes:
        history: (number of the step in this session, its loss scale) of the skipped steps, the
            latest last.
    """

    def __init__(self, history: Sequence[tuple[int, float]], floor: float, limit: int) -> None:
        """Describe the skipped steps."""
        self.history = tuple(history)
        shown = ", ".join(f"step {step}: {scale:g}" for step, scale in self.history[-_SHOWN:])
        super().__init__(
            f"{limit} steps in a row were skipped at the lowest loss scale, {floor:g}",
            where="loss scale",
            found=f"gradients that are not finite ({shown})",
            expected="finite gradients at some loss scale",
            remedy="look for NaN in the data and for a diverging loss, lower the learning rate, or "
            "set floor below 1",
        )
