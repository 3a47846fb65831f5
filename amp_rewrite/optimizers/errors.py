"""Errors of optimizers; each is the built-in error too that TensorFlow raises in its place."""

from __future__ import annotations

from amp_rewrite.errors import AmpError


class OptimizerValueError(AmpError, ValueError):
    """An optimizer, a schedule or a clipping function is given an impossible value."""


class OptimizerTypeError(AmpError, TypeError):
    """An optimizer is given an object of a kind that it does not take."""
