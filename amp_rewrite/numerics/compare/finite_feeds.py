"""Which feeds a verdict counts: those on which the original is finite itself.

Evidence: data of NaN (tests/numerics/compare/test_trusted_verdicts.py): without, NaN equals NaN and
the model passes; with, such feeds do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from amp_rewrite.errors import OutOfTimeError, RunError
from amp_rewrite.numerics.compare.distance import is_float
from amp_rewrite.numerics.inputs.batches import Array, Feeds
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs


def finite_feed(
    plausible: PlausibleInputs, run: Callable[[Feeds], Mapping[str, Any]]
) -> tuple[int, Feeds]:
    """Return the attempt at sizes that runs, and its feed: one on which outputs are finite.

    A square root of negative numbers is NaN, a mean of none, or a band between crossed limits.

    Raises:
        DataError: The model runs on no made-up inputs.
    """
    outputs: dict[str, Any] = {}
    attempt, feeds = plausible.runnable(lambda example: outputs.update(run(example)))
    if lost_in(outputs, {}) is None:
        return attempt, feeds
    return attempt, next((f for f in plausible.alternatives(feeds) if _is_finite(f, run)), feeds)


def _is_finite(feeds: Feeds, run: Callable[[Feeds], Mapping[str, Any]]) -> bool:
    try:
        return lost_in(run(feeds), {}) is None
    except OutOfTimeError:
        raise
    except RunError:
        return False


def lost_in(outputs: Mapping[str, Any], apart: Mapping[str, Array]) -> str | None:
    """Return what of the original is not finite, in a few words; None if all of it is.

    Minus infinity is what masks are filled with, and counts as a number. Rows that are `apart` are
    read by nobody.
    """
    for name, value in outputs.items():
        for array in _floats(value):
            read = array[~apart[name]] if name in apart else array
            for kind, mask in (("NaN", np.isnan(read)), ("infinity", np.isposinf(read))):
                if mask.any():
                    return f"the original gives {kind} in output {name}"
    return None


def nonfinite_input(feeds: Feeds) -> str | None:
    """Return the first input that holds NaN or infinity, and how many; None if none does.

    Minus infinity may be the fill of a mask.
    """
    for name, value in feeds.items():
        for array in _floats(value):
            for kind, mask in (("NaN", np.isnan(array)), ("infinity", np.isposinf(array))):
                if mask.any():
                    return f"input {name} holds {kind} in {np.count_nonzero(mask)} elements"
    return None


def _floats(value: Any) -> Iterator[Array]:
    """Yield the floats of a value: itself, or the items of a sequence."""
    for item in value if isinstance(value, list) else [value]:
        array = np.asarray(item)
        if item is not None and is_float(array):
            yield array.astype(np.float32) if array.dtype.kind != "f" else array
