"""A step in float16 whose loss nothing scales."""

from __future__ import annotations

from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.training.global_state import global_state
from amp_rewrite.training.step.step_info import StepInfo


def warn_if_unscaled(info: StepInfo) -> None:
    """Warn, once per process, of a float16 step without a loss scale."""
    if info.precision != FLOAT16.name or info.loss_scale is not None:
        return
    global_state.warn_once(
        "unscaled",
        "a float16 step without a loss scale may not converge: gradients below "
        f"{FLOAT16.smallest_subnormal:.1g} become zero. Wrap the optimizer in LossScaleOptimizer, "
        "or call enable_mixed_precision_graph_rewrite",
    )
