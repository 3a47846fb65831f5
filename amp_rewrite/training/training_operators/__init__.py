"""The operators of ai.onnx.preview.training: Gradient, Adam, Adagrad and Momentum."""

from amp_rewrite.errors import TrainingInfoError
from amp_rewrite.training.training_operators.lower import lower_training_operators

__all__ = ["TrainingInfoError", "lower_training_operators"]
