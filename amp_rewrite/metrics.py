"""What is measured on held-out examples besides the loss."""

from amp_rewrite.loop.metrics.class_metrics import Accuracy, F1Score, Perplexity
from amp_rewrite.loop.metrics.get_metric import get
from amp_rewrite.loop.metrics.mean_error import FunctionMean, MeanAbsoluteError, MeanSquaredError
from amp_rewrite.loop.metrics.metric import Metric

__all__ = [
    "Accuracy",
    "F1Score",
    "FunctionMean",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Metric",
    "Perplexity",
    "get",
]
