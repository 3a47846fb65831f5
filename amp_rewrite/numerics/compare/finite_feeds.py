"""Which feeds a verdict counts: those on which the original is finite itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from amp_rewrite.numerics.compare.distance import is_float
from amp_rewrite.numerics.inputs.batches import Array, Feeds


def lost_in(outputs: Mapping[str, Any], apart: Mapping[str, Array]) -> str | None:
    """Return what of the original is not finite, in a few words; None if all of it is.

    Minus infinity is what masks are filled with, and counts as a number.

    Args:
        outputs: The outputs of the original.
        apart: Rows of them that nobody reads.
    """
    for name, value in outputs.items():
        for array in _floats(value):
            read = array[~apart[name]] if name in apart else array
            for kind, found in (("NaN", np.isnan(read)), ("infinity", np.isposinf(read))):
                if found.any():
                    return f"the original gives {kind} in output {name}"
    return None


def nonfinite_input(feeds: Feeds) -> str | None:
    """Return the first input that holds NaN or infinity, and how many; None if none does.

    Minus infinity may be the fill of a mask.
    """
    for name, value in feeds.items():
        for array in _floats(value):
            for kind, found in (("NaN", np.isnan(array)), ("infinity", np.isposinf(array))):
                if found.any():
                    return f"input {name} holds {kind} in {np.count_nonzero(found)} elements"
    return None


def _floats(value: Any) -> Iterator[Array]:
    """Yield the floats of a value: itself, or the items of a sequence."""
    for item in value if isinstance(value, list) else [value]:
        array = np.asarray(item)
        if item is not None and is_float(array):
            yield array.astype(np.float32) if array.dtype.kind != "f" else array
