"""`error_budget` and `localise`: what each rounding of a model adds to the error of its outputs."""

from __future__ import annotations

from typing import Unpack

from amp_rewrite.base import arguments
from amp_rewrite.errors import DataError
from amp_rewrite.graph.io.load import Source
from amp_rewrite.numerics.budget.budget import Budget
from amp_rewrite.numerics.budget.contributions import DRAWS, measure
from amp_rewrite.numerics.budget.painted import painting_of
from amp_rewrite.numerics.inputs.batches import Data, Feeds, batches
from amp_rewrite.numerics.repaint.repaint import Repainter
from amp_rewrite.rewriting.plan.options import Changes, RewriteOptions, changed, with_option_names


@with_option_names
def error_budget(
    model: Source,
    data: Data,
    options: RewriteOptions | None = None,
    *,
    rewritten: Source | None = None,
    draws: int = DRAWS,
    **changes: Unpack[Changes],
) -> Budget:
    """Measure what rounding each value adds to the error of each output.

    One forward pass and a backward pass for each of a few random directions give the contribution
    of every value: the gradient of the output times the rounding error of the value. The sum of
    the squares predicts the error of a 16-bit model, mostly within a factor of 1.6.

    Args:
        model: The float32 model: a path, an onnx_ir model or a ModelProto; never modified.
        data: Batches as for `calibrate`; up to 8 of them count, evenly chosen.
        options: How the model is to be rewritten, as for `rewrite`.
        rewritten: The 16-bit model whose error is predicted, whose nodes are found in the original
            by name; None for what `rewrite` makes of the original. With it, only the option
            `target` may be given.
        draws: Random directions for each batch. With n of them the square of an estimate has a
            relative error of about sqrt(2 / n).
        **changes: Single options by name, as for `rewrite`.

    Returns:
        The contributions, the largest first. First-order errors miss near ties of a choice, and
        states over many calls (docs/error_budget.md).

    Raises:
        GradientError: The opset is too old for gradients and cannot be raised, or no output is
            float32.
        AmpError: The model, the data or an option is wrong, or ONNX Runtime is not installed.

    Examples:
        >>> data = [{"x": np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)}]
        >>> budget = amp.error_budget("model.onnx", data)
        >>> print(budget.contributions[0])
        fc2 (MatMul)
    """
    draws = arguments.integer("draws", draws, low=1)
    painter, low = painting_of(model, rewritten, changed(options, **changes))
    return Budget.of(painter, measure(painter, fed(painter, data), draws), low)


def fed(painter: Repainter, data: Data) -> list[Feeds]:
    """Return the batches, of which there is one at least.

    Raises:
        DataError: The data are wrong, or there are none.
    """
    feeds = list(batches(data, painter.model))
    if not feeds:
        raise DataError("the data hold no batch", remedy="pass at least one")
    return feeds
