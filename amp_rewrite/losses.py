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

_ELSEWHERE = {
    **dict.fromkeys(
        ("cross_entropy", "CrossEntropyLoss", "SparseCategoricalCrossentropy", "nll_loss"),
        "softmax_cross_entropy",
    ),
    **dict.fromkeys(("binary_cross_entropy", "BCEWithLogitsLoss"), "sigmoid_cross_entropy"),
    **dict.fromkeys(("mse", "mse_loss", "MSELoss"), "mean_squared_error"),
    **dict.fromkeys(("mae", "l1_loss", "L1Loss"), "mean_absolute_error"),
    **dict.fromkeys(("smooth_l1_loss", "huber_loss", "HuberLoss"), "huber"),
    **dict.fromkeys(
        ("kl_div", "KLDivLoss", "kl_divergence"), "softmax_cross_entropy(..., soft_labels=True)"
    ),
}
"""The name of a loss in PyTorch and Keras -> its name here."""

give_hints(__name__, _ELSEWHERE)
