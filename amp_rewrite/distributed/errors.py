"""Errors of training on several shards."""

from __future__ import annotations

from amp_rewrite.errors import AmpError


class ShardError(AmpError):
    """Shards differ, one of them has ended or does not answer, or an engine is not there."""
