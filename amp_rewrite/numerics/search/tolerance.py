"""What "the tolerance holds" means for a search: one metric and one limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.numerics.inputs.batches import Array

METRICS = ("max-relative", "cosine", "top1")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A metric and its limit; a loss of 0 is perfect, and the tolerance holds up to `limit`.

    Attributes:
        metric: "max-relative": the largest |low - float32| over the largest |float32| of an
            output. "cosine": 1 - the cosine between the two outputs. "top1": the share of rows
            (along the last axis) whose largest element is another one.
        limit: The largest loss to accept.
    """

    metric: str
    limit: float

    def __post_init__(self) -> None:
        """Reject impossible values.

        Raises:
            OptionError: The metric is unknown or the limit is negative.
        """
        arguments.one_of("metric", self.metric, METRICS)
        arguments.number("tolerance", self.limit, low=0, expected="a number of at least 0")

    @staticmethod
    def default(metric: str, rtol: float) -> Tolerance:
        """Return the usual limit: cosine 0.999, no other top-1 class, or `rtol`."""
        return Tolerance(metric, {"cosine": 1e-3, "top1": 0.0}.get(metric, rtol))

    def loss(self, reference: Array, output: Array, apart: Array | None = None) -> float:
        """Return the loss of one output; infinite where finite numbers became infinite or NaN.

        The rows `apart`, elements of the first axes, must only stay finite.
        """
        if reference.dtype.kind != "f":
            return _disagreement(reference, output)
        if reference.shape != output.shape:
            return float("inf")
        if apart is not None:
            if not np.isfinite(output[np.isfinite(reference)]).all():
                return float("inf")
            reference, output = reference[~apart], output[~apart]
        finite = np.isfinite(reference)
        a, b = reference[finite].astype(np.float64), output[finite].astype(np.float64)
        if not np.isfinite(b).all():
            return float("inf")
        if not a.size:
            return 0.0
        if self.metric == "cosine":
            return _angle(a, b)
        if self.metric == "top1":
            return _other_class(reference, output)
        largest = float(np.abs(a).max())
        error = float(np.abs(b - a).max())
        return error / largest if largest else (float("inf") if error else 0.0)

    def worst(
        self,
        reference: Mapping[str, Array],
        outputs: Mapping[str, Array],
        apart: Mapping[str, Array] | None = None,
    ) -> float:
        """Return the largest loss over all outputs, without the rows of each that are apart."""
        rows = apart or {}
        losses = (self.loss(a, outputs[name], rows.get(name)) for name, a in reference.items())
        return max(losses, default=0.0)


def _angle(a: Array, b: Array) -> float:
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    if not norm:
        return 0.0 if float(np.linalg.norm(a)) == float(np.linalg.norm(b)) else 1.0
    return max(0.0, 1.0 - float(a @ b) / norm)


def _other_class(reference: Array, output: Array) -> float:
    if reference.ndim == 0 or reference.shape[-1] < 2:
        return 0.0
    return float((reference.argmax(-1) != output.argmax(-1)).mean())


def _disagreement(reference: Array, output: Array) -> float:
    """Return the share of other elements in an output that is not floating-point."""
    if reference.shape != output.shape:
        return float("inf")
    return float((reference != output).mean()) if reference.size else 0.0
