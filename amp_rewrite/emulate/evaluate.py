"""`evaluate`: run a model once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from amp_rewrite.emulate.evaluator import Evaluator
from amp_rewrite.graph.io.load import Source


def evaluate(
    model: Source,
    feeds: Mapping[str, Any],
    *,
    emulate: bool = True,
    outputs: Iterable[str] | None = None,
    accumulate_low: Collection[str] = (),
) -> dict[str, Any]:
    """Run a model on a CPU, rounding as the low-precision hardware would.

    Args:
        model: A path, an onnx_ir model or a ModelProto; not modified.
        feeds: Input name -> array, of the model's types.
        emulate: False runs the model as ONNX Runtime's CPU provider does: mostly in float32,
            whatever the model says.
        outputs: Names of values of the main graph to return, None for the graph's outputs.
        accumulate_low: See `emulate_model`.

    Returns:
        Value name -> array, in the type that the model gives the value (bfloat16 from ml_dtypes).
        To run many batches make an `Evaluator`: it loads the model once.

    Raises:
        AmpError: The model, a feed or an output name is wrong, or ONNX Runtime is not installed.
    """
    evaluator = Evaluator(model, emulate=emulate, outputs=outputs, accumulate_low=accumulate_low)
    return evaluator.run(feeds)
