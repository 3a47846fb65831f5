"""Tune: the least float32 with which a tolerance holds on data, by the error budget."""

from __future__ import annotations

import os
import time
from typing import Unpack

from amp_rewrite.base import arguments
from amp_rewrite.base.progress import silent
from amp_rewrite.graph.io.load import Source
from amp_rewrite.numerics.budget.contributions import DRAWS
from amp_rewrite.numerics.budget.error_budget import fed
from amp_rewrite.numerics.budget.tolerance import METRICS, Tolerance
from amp_rewrite.numerics.budget.tuner import Progress, Tuner
from amp_rewrite.numerics.budget.tuning import Tuning
from amp_rewrite.numerics.inputs.batches import Data
from amp_rewrite.numerics.repaint.overlay import list_path
from amp_rewrite.numerics.repaint.repaint import Repainter
from amp_rewrite.rewriting.plan.options import Changes, RewriteOptions, changed, with_option_names


@with_option_names
def tune(
    model: Source,
    data: Data,
    rtol: float | Tolerance | None = None,
    options: RewriteOptions | None = None,
    *,
    metric: str = METRICS[0],
    draws: int = DRAWS,
    budget: float = 600.0,
    output: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **changes: Unpack[Changes],
) -> Tuning:
    """Find the least float32 with which a model is within a tolerance on data.

    The error budget says what each rounding adds, a minimum cut chooses what stays float32, and up
    to eight runs of the rewritten model check the choice. A node that a rule keeps float32 by an
    estimate may become 16-bit, if its rounding was measured.

    Args:
        model: The float32 model.
        data: Batches as for `calibrate`, all of which are kept in memory.
        rtol: The largest loss to accept over all batches; of "cosine", 1 - cosine. None is that of
            the metric.
        options: How the model is to be rewritten, as for `rewrite`.
        metric: What is measured: "max-relative" (the largest error of an output over its largest
            magnitude), "error" (as `verify` without a tolerance), "cosine" or "top1".
        draws: Random directions for each batch, as for `error_budget`.
        budget: Seconds for all of it; the best choice found by then is returned.
        output: Where to write the op list.
        progress: Called with what is being done.
        **changes: Single options by name, as for `rewrite`.

    Returns:
        What stays float32; `holds` says whether the loss and the prediction are small enough.

    Raises:
        GradientError: The opset is too old for gradients and cannot be raised, or no output is
            float32.
        AmpError: The model, the data or an option is wrong.

    Examples:
        >>> data = [{"x": np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)}]
        >>> tuned = amp.tune("model.onnx", data, rtol=0.001)
        >>> tuned
        <Tuning: Passed: max-relative ..., at most 0.001; without tuning ...>
    """
    draws = arguments.integer("draws", draws, low=1)
    seconds = arguments.number("budget", budget, expected="a number of seconds")
    say = arguments.function("progress", progress) or silent
    output = None if output is None else list_path(output)
    chosen = changed(options, **changes)
    if not isinstance(rtol, Tolerance):
        default = Tolerance.default(metric, chosen.low.rtol)
        rtol = default if rtol is None else Tolerance(metric, rtol)
    painter = Repainter.of(model, chosen)
    tuner = Tuner(painter, fed(painter, data), rtol, lifts=True, say=say)
    if painter.options.strict:
        painter.rewrite()  # what it refuses is refused before anything is run
    tuned = tuner.tuned(time.monotonic() + seconds, draws) or tuner.untuned()
    if output is not None:
        tuned.save(output)
    return tuned
