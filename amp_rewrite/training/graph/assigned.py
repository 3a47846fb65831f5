"""Values that users assign to states."""

from __future__ import annotations

from typing import Any

import numpy as np

from amp_rewrite.errors import OptionError

Array = np.ndarray[Any, Any]

NO_NUMBERS = "cOSUMm"
"""numpy's kinds of complex numbers, objects, texts and times."""


def assigned(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], where: str) -> Array:
    """Return a value as an array of a state's type."""
    expected = f"{dtype} {list(shape)}"
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # lists of different lengths, a device
        raise _no_tensor(where, error, expected) from error
    if array.dtype.kind in NO_NUMBERS:
        raise _no_tensor(where, f"{array.dtype} {list(array.shape)}", expected)
    if array.shape != shape:
        raise OptionError(
            "a state tensor cannot take a value of another shape",
            where=where,
            found=array.shape,
            expected=shape,
        )
    if array.size and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise OptionError(
            "a state cannot take numbers of another kind",
            where=where,
            found=array.dtype,
            expected=dtype,
            remedy=f"convert them, for example with .astype('{dtype}')",
        )
    return np.array(array, dtype, order="C")


def _no_tensor(where: str, content: object, expected: str) -> OptionError:
    return OptionError(
        "a state cannot take what is not a tensor of numbers",
        where=where,
        found=content,
        expected=expected,
        remedy="pass a numpy array",
    )
