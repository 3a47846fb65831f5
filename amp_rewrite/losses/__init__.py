"""Losses that are added to a model that ends in logits or predictions."""

from amp_rewrite.losses.huber import huber
from amp_rewrite.losses.kl_divergence import kl_divergence
from amp_rewrite.losses.mean_absolute_error import mean_absolute_error
from amp_rewrite.losses.mean_squared_error import mean_squared_error
from amp_rewrite.losses.sigmoid_cross_entropy import sigmoid_cross_entropy
from amp_rewrite.losses.softmax_cross_entropy import softmax_cross_entropy

__all__ = [
    "huber",
    "kl_divergence",
    "mean_absolute_error",
    "mean_squared_error",
    "sigmoid_cross_entropy",
    "softmax_cross_entropy",
]
