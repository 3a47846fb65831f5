"""The gain of a rewrite, in words that need no knowledge of how it works."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from amp_rewrite.base.printable import counted
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.io.model_files import INLINE_LIMIT
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.rewriting.plan.casts import CastPlan
from amp_rewrite.rewriting.report.records import Summary

_ABOUT_HALF = (0.495, 0.515)
"""The share of a file that is called half of it: what is not a weight stays as it is."""


class Sizes(NamedTuple):
    """The bytes of a model's files before and after; `exact` if the latter were written."""

    before: int
    after: int
    exact: bool

    @property
    def share(self) -> float:
        """The size after, relative to that before."""
        return self.after / self.before if self.before else 1.0


def headline(precision: str, summary: Summary, sizes: Sizes | None = None) -> str:
    """Return what was gained: "100 % of the arithmetic in float16; half the file size"."""
    casts = f"; {counted(summary.casts_added, 'cast')} added" if summary.casts_added else ""
    if not summary.nodes_converted and summary.nodes_low_before:
        count = summary.nodes_low_before
        verb, them = ("is", "it") if count == 1 else ("are", "them")
        return (
            f"{counted(count, 'node')} {verb} {precision} already; `convert` leaves {them}. "
            f"Use `check` and `repair` for 16-bit files{casts}"
        )
    if not summary.nodes_converted:
        done = "" if summary.casts_added else "nothing changed: "
        return f"{done}no part of the model can compute in {precision}{casts}"
    gain = f"{_percent(summary.compute_converted)} of the arithmetic in {precision}"
    if sizes is None:
        return gain
    is_half = _ABOUT_HALF[0] <= sizes.share <= _ABOUT_HALF[1]
    return f"{gain}; {'half' if is_half else f'{_percent(sizes.share)} of'} the file size"


def _percent(share: float) -> str:
    """Return a share in per cent; what is not all of it, or not nothing, never reads so."""
    whole = round(100 * share)
    if (whole == 100) != (share == 1) or (whole == 0) != (share == 0):
        return f"{100 * share:.2g} %" if share < 0.5 else f"{100 * share:.1f} %"
    return f"{whole} %"


def sizes_of(model: Path, flat: FlatGraph, plan: CastPlan, rewritten: Path | None) -> Sizes:
    """Return how large a model is before and after, from the plan if nothing was `rewritten`.

    Raises:
        LoadError: A file cannot be read.
    """
    is_read = flat.files.base_dir is not None  # else it came from memory, or was inlined
    before = os.path.getsize(model) + flat.files.total if is_read else size_of(model)
    if rewritten is None:
        added = 0
        for weight in plan.weights:
            gone = 0 if weight.keep_float32 else FLOAT32.numpy.itemsize
            added += weight.tensor.size * (weight.dtype.numpy.itemsize - gone)
        return Sizes(before, max(0, before + added), exact=False)
    is_one_file = is_read and before < INLINE_LIMIT // 2 and not flat.files.total
    after = os.path.getsize(rewritten) if is_one_file else size_of(rewritten)
    return Sizes(before, after, exact=True)


def size_of(model: Path) -> int:
    """Return the bytes of a model's file and of the data files that it names."""
    return os.path.getsize(model) + read_flat(model).files.total
