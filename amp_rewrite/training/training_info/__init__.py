"""ONNX's own training format: ModelProto.training_info and ai.onnx.preview.training."""

from amp_rewrite.errors import TrainingInfoError
from amp_rewrite.training.training_info.lower import lower_training_operators
from amp_rewrite.training.training_info.reading import has_training_info, read_training_info
from amp_rewrite.training.training_info.writing import write_training_info

__all__ = [
    "TrainingInfoError",
    "has_training_info",
    "lower_training_operators",
    "read_training_info",
    "write_training_info",
]
