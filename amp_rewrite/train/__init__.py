"""Training steps as ONNX models, and the session that runs them."""

from amp_rewrite.train.errors import CheckpointError, FeedError, FetchError, StepError
from amp_rewrite.train.session import TrainingSession
from amp_rewrite.train.step import build_step

__all__ = [
    "CheckpointError",
    "FeedError",
    "FetchError",
    "StepError",
    "TrainingSession",
    "build_step",
]
