"""Callbacks of `Trainer`: early stopping, checkpoints, logs, your own."""

from amp_rewrite.base.hints import give_hints
from amp_rewrite.loop.ready_callbacks import Best, BestCheckpoint, CSVLogger, EarlyStopping, Watch
from amp_rewrite.loop.run_with_callbacks import Callback, Run

__all__ = [
    "Best",
    "BestCheckpoint",
    "CSVLogger",
    "Callback",
    "EarlyStopping",
    "Run",
    "Watch",
]

give_hints(__name__)
