"""How far an output of a changed model is from the original's, both in float32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def float32_distance(expected: Any, output: Any) -> float:
    """Return the largest error of an output, relative to its largest magnitude.

    It is infinite where shapes, integers or texts differ, or an element is finite in one only.

    Args:
        expected: An array, a list of arrays, or None for an optional without a value.
        output: The same of the other model.
    """
    if isinstance(expected, list | tuple):
        if len(expected) != len(output):
            return math.inf
        return max(map(float32_distance, expected, output), default=0.0)
    a, b = np.asarray(expected), np.asarray(output)
    if a.dtype.kind not in "fV" or a.shape != b.shape:
        return 0.0 if np.array_equal(a, b) else math.inf
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(np.where(finite, 0, a), np.where(np.isfinite(b), 0, b), equal_nan=True):
        return math.inf
    apart = np.abs(a[finite] - b[finite]).max(initial=0.0)
    return float(apart / max(np.abs(a[finite]).max(initial=0.0), 1e-30))
