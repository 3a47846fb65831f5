"""Losses that are added to a model that ends in logits or predictions."""

from amp_rewrite.base.hints import give_hints
from amp_rewrite.training.losses.elementwise_losses import (
    huber,
    mean_absolute_error,
    mean_squared_error,
    sigmoid_cross_entropy,
)
from amp_rewrite.training.losses.softmax_cross_entropy import softmax_cross_entropy

__all__ = [
    "huber",
    "mean_absolute_error",
    "mean_squared_error",
    "sigmoid_cross_entropy",
    "softmax_cross_entropy",
]

give_hints(__name__)
