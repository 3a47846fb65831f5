"""Training steps as ONNX models, and the session that runs them."""

from amp_rewrite.errors import CheckpointError, FeedError, FetchError, StepError
from amp_rewrite.trainer.session.training_session import TrainingSession
from amp_rewrite.trainer.step.build_step import build_step

__all__ = [
    "CheckpointError",
    "FeedError",
    "FetchError",
    "StepError",
    "TrainingSession",
    "build_step",
]
