"""What is measured on held-out examples besides the loss."""

from amp_rewrite.metrics.accuracy import Accuracy
from amp_rewrite.metrics.f1_score import F1Score
from amp_rewrite.metrics.function_mean import FunctionMean
from amp_rewrite.metrics.get_metric import get
from amp_rewrite.metrics.mean_error import MeanAbsoluteError, MeanSquaredError
from amp_rewrite.metrics.metric import Metric
from amp_rewrite.metrics.perplexity import Perplexity

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
