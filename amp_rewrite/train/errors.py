"""Errors of training: steps, feeds, fetches and checkpoints."""

from __future__ import annotations

from amp_rewrite.errors import AmpError


class StepError(AmpError):
    """A training step cannot be built, or a model is not one."""


class FeedError(AmpError):
    """What is fed to a step does not fit its inputs."""


class FetchError(AmpError):
    """A step is asked for a value that it does not compute."""


class CheckpointError(AmpError):
    """A checkpoint cannot be read, or belongs to another model."""


class DivergenceError(AmpError):
    """Training has led to a loss that is not finite."""
