"""Averages of the weights over the steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from amp_rewrite.errors import OptimizerValueError
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.gradient import Gradient
from amp_rewrite.training.optimizers.optimizer import Optimizer
from amp_rewrite.training.optimizers.slots import Variable
from amp_rewrite.training.optimizers.train_op import TrainOp, averaged
from amp_rewrite.training.optimizers.wrapper import OptimizerWrapper


class WeightAverage(OptimizerWrapper):
    """Keeps an average of each variable as a state, for evaluation and export.

        average += share * (variable after the step - average)

    With a `decay`, share = 1 - decay; with the warm-up, the decay of the n-th average, n from 0, is
    at most (1 + n) / (10 + n), as in TensorFlow's ExponentialMovingAverage. Without, share =
    1 / (n + 1): stochastic weight averaging (P. Izmailov et al., "Averaging Weights Leads to Wider
    Optima and Better Generalization", 2018, https://arxiv.org/abs/1803.05407). Up to the step
    `start` the average is the variable.

    `TrainingSession.evaluate` and `export` use the averages with `averaged=True`. Put a
    LossScaleOptimizer around this: a step that it skips averages nothing. Running statistics of
    BatchNormalization are not averaged.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        decay: float | None = 0.999,
        *,
        warm_up: bool = True,
        start: int = 0,
        every: int = 1,
    ) -> None:
        """Wrap an optimizer.

        Args:
            optimizer: Trains the variables.
            decay: In [0, 1); None averages all steps equally.
            warm_up: Whether the decay grows at first.
            start: The number of the step after which averaging begins.
            every: The number of steps from one average to the next.

        Raises:
            OptimizerValueError: An argument is impossible, or the optimizer scales the loss.
        """
        super().__init__(optimizer)
        if optimizer.scales_loss:
            raise OptimizerValueError(
                "a step that a loss scale skips must not be averaged",
                where="WeightAverage",
                found=type(optimizer).__name__,
                remedy="put the LossScaleOptimizer around the WeightAverage",
            )
        self._average: dict[str, Any] = {
            "decay": None if decay is None else check.number("decay", decay, high=1),
            "warm_up": check.flag("warm_up", warm_up),
            "start": check.whole("start", start, low=0),
            "every": check.whole("every", every, low=1),
        }

    def apply_reduced(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> TrainOp:
        """Let the inner optimizer apply gradients, and average the variables."""
        op = super().apply_reduced(grads_and_vars, global_step, name)
        return averaged(op, **self._average)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an optimizer like this one."""
        return {**super().get_config(), **self._average}
