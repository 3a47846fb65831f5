"""A part of a value, chosen as numpy's basic indexing does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import OptionError
from amp_rewrite.grad.builder.builder import Builder

_LAST = int(np.iinfo(np.int64).max)
_FIRST = int(np.iinfo(np.int64).min)
_INDEX_TYPES = (ir.DataType.INT32, ir.DataType.INT64)


def indexed(b: Builder, x: ir.Value, entries: Sequence[Any]) -> ir.Value:
    """Return x[entries]: integers, slices, None, at most one `...`, and values of integers."""
    entries = _without_ellipsis(b, x, entries)
    x = _sliced(b, x, entries)
    axis = 0
    for entry in entries:
        if isinstance(entry, ir.Value):
            x = b.gather(x, entry, axis)
            axis += b.rank(entry) or 0
        elif entry is None:
            x = b.unsqueeze(x, [axis])
            axis += 1
        elif isinstance(entry, slice):
            axis += 1
        else:
            x = b.squeeze(x, [axis])
    return x


def _without_ellipsis(b: Builder, x: ir.Value, entries: Sequence[Any]) -> list[Any]:
    """Return one entry for each axis that is indexed, `...` being written out."""
    indices = [_entry(b, x, entry) for entry in entries]
    axes = sum(entry is not None and entry is not ... for entry in indices)
    rank = b.rank(x)
    if rank is not None and axes > rank:
        raise OptionError(
            "more indices than axes", where=x.name, found=axes, expected=f"at most {rank}"
        )
    places = [k for k, entry in enumerate(indices) if entry is ...]
    if not places:
        return indices
    if rank is None or len(places) > 1:
        raise OptionError(
            "an index with ... is not clear",
            where=x.name,
            found="an unknown number of axes" if rank is None else f"{len(places)} times ...",
            remedy="write one index for each axis",
        )
    at = places[0]
    return [*indices[:at], *[slice(None)] * (rank - axes), *indices[at + 1 :]]


def _entry(b: Builder, x: ir.Value, entry: Any) -> Any:
    """Return an index as it is, an integer as Python's."""
    if entry is None or entry is ...:
        return entry
    if isinstance(entry, ir.Value):
        return _index_value(b, x, entry)
    if isinstance(entry, slice):
        parts = (entry.start, entry.stop, entry.step)
        if all(part is None or _is_integer(part) for part in parts) and entry.step != 0:
            return entry
    elif _is_integer(entry):
        return int(entry)
    raise OptionError(
        "not an index",
        where=x.name,
        found=repr(entry),
        expected="integers, slices, None, ... or a value of int32 or int64",
    )


def _index_value(b: Builder, x: ir.Value, entry: ir.Value) -> ir.Value:
    if b.type_of(entry) in _INDEX_TYPES and b.rank(entry) is not None:
        return entry
    raise OptionError(
        "not an index",
        where=x.name,
        found=f"the value {entry.name!r}",
        expected="a value of int32 or int64 of known rank",
    )


def _is_integer(entry: object) -> bool:
    return isinstance(entry, int | np.integer) and not isinstance(entry, bool)


def _sliced(b: Builder, x: ir.Value, entries: Sequence[Any]) -> ir.Value:
    """Return x cut along all axes that have an integer or a slice; no axis is dropped yet."""
    bounds: list[tuple[int, int, int, int]] = []
    axis = 0
    for entry in entries:
        if isinstance(entry, int):
            bounds.append((entry, _LAST if entry == -1 else entry + 1, axis, 1))
        elif isinstance(entry, slice) and entry != slice(None):
            step = 1 if entry.step is None else int(entry.step)
            start, stop = (0, _LAST) if step > 0 else (_LAST, _FIRST)
            start = start if entry.start is None else int(entry.start)
            stop = stop if entry.stop is None else int(entry.stop)
            bounds.append((start, stop, axis, step))
        axis += entry is not None
    if not bounds:
        return x
    starts, stops, axes, steps = (list(column) for column in zip(*bounds, strict=True))
    return b.slice(x, starts, stops, axes, steps)
