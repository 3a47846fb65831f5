"""A file that somebody looks at before it takes its place.

While models are saved in the block, each is complete under a temporary name in its folder, with its
data file beside it, when it is judged. What the judge refuses by an error is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

Judge = Callable[[str], None]
"""Is given the path of a complete file; raises an AmpError to refuse it."""

_JUDGE: ContextVar[Judge | None] = ContextVar("judge", default=None)


@contextmanager
def judged_by(judge: Judge | None) -> Generator[None]:
    """Have every model file that is saved in the block judged before it takes its place."""
    before = _JUDGE.set(judge)
    try:
        yield
    finally:
        _JUDGE.reset(before)


def judge_file(path: str) -> None:
    """Have a complete file judged if somebody wants to; raises what the judge does."""
    judge = _JUDGE.get()
    if judge is not None:
        with judged_by(None):  # what the judge saves is its own business
            judge(path)
