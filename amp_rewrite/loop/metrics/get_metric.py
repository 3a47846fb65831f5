"""Metrics by their names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from amp_rewrite.errors import OptionError
from amp_rewrite.loop.metrics.class_metrics import Accuracy, F1Score, Perplexity
from amp_rewrite.loop.metrics.mean_error import MeanAbsoluteError, MeanSquaredError
from amp_rewrite.loop.metrics.metric import Metric

_BY_NAME: Mapping[str, Callable[..., Metric]] = {
    "accuracy": Accuracy,
    "f1": F1Score,
    "mean-squared-error": MeanSquaredError,
    "mean-absolute-error": MeanAbsoluteError,
    "perplexity": Perplexity,
}
NAMES = (*_BY_NAME, "top-K")
"""What metrics are called on the command line; K is a number."""


def get(identifier: str | Metric) -> Metric:
    """Return a metric.

    Args:
        identifier: A metric, or its name: "accuracy", "top-5", "f1", "perplexity", ...; what is
            compared may follow: "mean-squared-error:PREDICTIONS:LABELS".

    Raises:
        OptionError: There is no such metric.
    """
    if isinstance(identifier, Metric):
        return identifier
    name, *compared = identifier.split(":") if isinstance(identifier, str) else [""]  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
    name = name.replace("_", "-")
    top = re.fullmatch(r"top-([1-9][0-9]{0,8})", name)
    exists = name in _BY_NAME or top is not None
    if not exists or len(compared) not in (0, 2) or (compared and name == "perplexity"):
        raise OptionError(
            "unknown metric",
            found=repr(identifier),
            expected=" or ".join(NAMES),
            remedy="name what is compared as METRIC:PREDICTIONS:LABELS",
        )
    return Accuracy(*compared, top_k=int(top[1])) if top else _BY_NAME[name](*compared)
