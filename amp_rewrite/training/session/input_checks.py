"""Checks of the numbers that are fed: classes, rows, and numbers that are not finite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.errors import FeedError, OptionError
from amp_rewrite.runtimes.ort.device import HOST
from amp_rewrite.runtimes.ort.ort_values import copy_of
from amp_rewrite.training.step.input_limits import IndexRange, InputLimits

Array = np.ndarray[Any, Any]

ALLOW, COUNT, REFUSE = "allow", "count", "refuse"
NON_FINITE = (ALLOW, COUNT, REFUSE)
"""What a session does with numbers that are not finite."""


class InputChecks:
    """What is checked of the numbers fed to a session, in host memory.

    Attributes:
        counted: Input -> how many numbers that are not finite were fed, if they are counted.
    """

    def __init__(self, limits: InputLimits, non_finite: object = ALLOW) -> None:
        """Keep what to check."""
        if not isinstance(non_finite, str) or non_finite not in NON_FINITE:
            raise OptionError(
                "unknown treatment of numbers that are not finite",
                where="non_finite",
                found=repr(non_finite),
                expected=" or ".join(map(repr, NON_FINITE)),
            )
        self._limits, self._non_finite = limits, str(non_finite)
        self.counted: dict[str, int] = {}

    def refuse(self, tensors: Mapping[str, Any]) -> None:
        """Refuse tensors with numbers that the step cannot do anything useful with.

        Raises:
            FeedError: A class or a row does not exist, or a number is not finite and refused.
        """
        for name, tensor in tensors.items():
            ranges = self._limits.ranges.get(name, ())
            array = _on_host(tensor) if ranges or self._non_finite == REFUSE else None
            if array is None or not array.size:
                continue
            for limits in ranges:
                _check_range(name, array, limits)
            if self._non_finite == REFUSE:
                _check_finite(name, array)

    def count(self, tensors: Mapping[str, Any]) -> None:
        """Count what is not finite, if that is wanted."""
        if self._non_finite != COUNT:
            return
        for name, number in non_finite(tensors).items():
            self.counted[name] = self.counted.get(name, 0) + number

    def refuse_one(self, lengths: Mapping[str, int]) -> None:
        """Refuse a batch of one example where the step normalizes over the batch alone."""
        for symbol, where in self._limits.normalized.items():
            if lengths.get(symbol) == 1:
                raise FeedError(
                    "a batch of one example cannot train a batch normalization: one number in each "
                    "channel is its own mean, and its gradient is zero",
                    where=where,
                    found=f"{symbol} = 1",
                    expected="at least 2 examples in a batch",
                    remedy="choose another size of batches, or leave the last one out",
                )


def non_finite(tensors: Mapping[str, Any]) -> dict[str, int]:
    """Return input -> how many of its numbers are not finite, where there are any."""
    arrays = {name: _on_host(tensor) for name, tensor in tensors.items()}
    counts = {
        name: int((~np.isfinite(array)).sum())
        for name, array in arrays.items()
        if array is not None and _is_floating(array)
    }
    return {name: count for name, count in counts.items() if count}


def _is_floating(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype == BFLOAT16.ir.numpy()


def _on_host(tensor: Any) -> Array | None:
    """Return the numbers of an array or OrtValue in host memory; None for those elsewhere."""
    if isinstance(tensor, np.ndarray):
        return tensor
    return copy_of(tensor) if tensor.device_name() == HOST.kind else None


def _check_range(name: str, array: Array, limits: IndexRange) -> None:
    """Refuse integers out of range."""
    low, high = array.min(), array.max()
    within = low >= limits.low and (limits.high is None or high < limits.high)
    if limits.averages and limits.ignored is not None and low == high == limits.ignored:
        raise FeedError(
            f"the feed {name!r} holds no {limits.what} that counts: the mean of nothing is NaN",
            where=limits.where,
            found=f"{limits.ignored}, which is ignored, {array.size} times",
            remedy="leave such a batch out",
        )
    if within:
        return
    wrong = array < limits.low
    if limits.high is not None:
        wrong |= array >= limits.high
    if limits.ignored is not None:
        wrong &= array != limits.ignored
    if not wrong.any():
        return
    top = "" if limits.high is None else f" to {limits.high - 1}"
    remedy = "number the classes from 0, or let the loss ignore this number by ignore_index"
    raise FeedError(
        f"the feed {name!r} holds a {limits.what} that does not exist",
        where=limits.where,
        found=_first(array, wrong),
        expected=f"integers from {limits.low}{top}"
        + ("" if limits.ignored is None else f", or {limits.ignored}"),
        remedy=remedy if limits.what == "class" else "feed numbers of rows of the table",
    )


def _check_finite(name: str, array: Array) -> None:
    """Refuse numbers that are not finite."""
    if not _is_floating(array):
        return
    wrong = ~np.isfinite(array)
    if wrong.any():
        raise FeedError(
            f"the feed {name!r} holds a number that is not finite",
            found=_first(array, wrong),
            expected="finite numbers",
            remedy="leave such examples out, or allow them by non_finite='allow'",
        )


def _first(array: Array, wrong: Array) -> str:
    """Return the first wrong element, where it is, and how many there are."""
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = "" if not index else f" at {list(index)}"
    return f"{array[index]}{place}; {int(wrong.sum())} of {array.size} are wrong"
