"""ONNX's own training format: ModelProto.training_info and ai.onnx.preview.training."""

from amp_rewrite.training_info.errors import TrainingInfoError
from amp_rewrite.training_info.lower import lower_training_operators

__all__ = [
    "TrainingInfoError",
    "lower_training_operators",
]
