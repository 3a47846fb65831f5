"""What is called while `Trainer` trains: early stopping, checkpoints, logs, a page, your own."""

from amp_rewrite.loop.metrics_file import MetricsFile
from amp_rewrite.loop.ready_callbacks import (
    Best,
    BestCheckpoint,
    EarlyStopping,
    Log,
    Rows,
    Watch,
)
from amp_rewrite.loop.run_with_callbacks import Callback, Run
from amp_rewrite.loop.tensorboard import TensorBoard

__all__ = [
    "Best",
    "BestCheckpoint",
    "Callback",
    "EarlyStopping",
    "Log",
    "MetricsFile",
    "Rows",
    "Run",
    "TensorBoard",
    "Watch",
]
