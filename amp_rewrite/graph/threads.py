"""Work on all cores that comes back in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_MOST = 8
"""Threads at most. Four convert as fast as a fifth computes the SHA-256 of what they give."""

_AHEAD = 2  # items that are in work or done for each thread

T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    """Return how many threads are of use here: one for each core that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), _MOST)
    return min(os.cpu_count() or 1, _MOST)


def in_order(function: Callable[[T], R], items: Iterable[T]) -> Generator[R]:
    """Yield `function(item)` for each item in order, computed in threads ahead of the consumer.

    Two items a core are taken ahead: at most two results a core are held. When one fails or
    the consumer stops, those that have not begun are dropped; the error comes after the threads
    have ended.
    """
    threads = cores()
    pending: deque[Future[R]] = deque()
    with ThreadPoolExecutor(threads, "amp-rewrite") as pool:
        try:
            for item in items:
                pending.append(pool.submit(function, item))
                if len(pending) == _AHEAD * threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
