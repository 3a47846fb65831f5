"""Tune: the least float32 with which a tolerance holds on data, by the error budget."""

from __future__ import annotations

import os
import time
from typing import Unpack

from amp_rewrite.base import arguments
from amp_rewrite.base.progress import silent
from amp_rewrite.errors import OptionError, SaveError
from amp_rewrite.graph.io.load import Source
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.numerics.budget.contributions import DRAWS
from amp_rewrite.numerics.budget.error_budget import fed
from amp_rewrite.numerics.budget.tolerance import Tolerance
from amp_rewrite.numerics.budget.tuner import Progress, Tuner
from amp_rewrite.numerics.budget.tuning import Tuning
from amp_rewrite.numerics.inputs.batches import Data
from amp_rewrite.numerics.repaint.repaint import Repainter
from amp_rewrite.rewriting.plan.options import Changes, RewriteOptions, changed, with_option_names


@with_option_names
def tune(
    model: Source,
    data: Data,
    tolerance: Tolerance,
    options: RewriteOptions | None = None,
    *,
    draws: int = DRAWS,
    budget: float = 600.0,
    output: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **changes: Unpack[Changes],
) -> Tuning:
    """Find the least float32 with which a model is within a tolerance on data.

    The error budget says what each rounding adds; a minimum cut chooses what stays float32, and up
    to eight runs of the rewritten model hold the choice against its error. What rules keep float32
    by an estimate is decided by the budget too, where it was measured.

    Args:
        model: The float32 model.
        data: Batches as for `calibrate`, all of which are kept in memory.
        tolerance: What has to hold over all batches.
        options: How the model is to be rewritten, as for `rewrite`.
        draws: How many directions are tried with each batch, as for `error_budget`.
        budget: Seconds for all of it; the best choice found by then is returned.
        output: Where to write the op list.
        progress: Called with what is being done.
        **changes: Single options by name, as for `rewrite`.

    Returns:
        What stays float32; `holds` says whether the tolerance and the prediction do.

    Raises:
        GradientError: The opset is too old for gradients and cannot be raised, or no output is
            float32.
        AmpError: The model, the data or an option is wrong.

    Examples:
        >>> data = [{"x": np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)}]
        >>> from amp_rewrite.numerics.budget.tolerance import Tolerance
        >>> tuned = amp.tune("model.onnx", data, Tolerance("max-relative", 0.001))
        >>> tuned
        <Tuning: 2 nodes stay float32: max-relative ... of at most 0.001, 2 runs>
    """
    _check_tolerance(tolerance)
    draws = arguments.integer("draws", draws, low=1)
    seconds = arguments.number("budget", budget, expected="a number of seconds")
    say = arguments.function("progress", progress) or silent
    output = None if output is None else path_text(output, SaveError)
    painter = Repainter.of(model, changed(options, **changes))
    tuner = Tuner(painter, fed(painter, data), tolerance, lifts=True, say=say)
    if painter.options.strict:
        painter.rewrite()  # what it refuses is refused before anything is run
    tuned = tuner.tuned(time.monotonic() + seconds, draws) or tuner.untuned()
    if output is not None:
        tuned.save(output)
    return tuned


def _check_tolerance(tolerance: object) -> None:
    if not isinstance(tolerance, Tolerance):
        raise OptionError(
            "not a tolerance",
            found=f"an object of type {type(tolerance).__name__}",
            expected="a Tolerance of amp_rewrite.numerics.budget.tolerance: a metric and its limit",
        )
