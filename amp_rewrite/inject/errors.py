"""Errors of injecting a loss scale into a finished training graph."""

from __future__ import annotations

from amp_rewrite.errors import AmpError


class InjectError(AmpError, ValueError):
    """A training graph is not what was said of it, or cannot take a loss scale."""
