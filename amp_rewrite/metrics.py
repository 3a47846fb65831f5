"""What is measured on held-out examples besides the loss."""

from amp_rewrite.loop.metrics.accuracy import Accuracy
from amp_rewrite.loop.metrics.f1_score import F1Score
from amp_rewrite.loop.metrics.function_mean import FunctionMean
from amp_rewrite.loop.metrics.get_metric import get
from amp_rewrite.loop.metrics.mean_error import MeanAbsoluteError, MeanSquaredError
from amp_rewrite.loop.metrics.metric import Metric
from amp_rewrite.loop.metrics.perplexity import Perplexity

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
