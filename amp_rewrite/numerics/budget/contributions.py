"""Measure what each rounding adds to the error of each output, over batches and unusual inputs.

An error is relative to the spread of its output, its standard deviation over elements and batches:
what an output says lies there, and not in its offset. Where slices along an axis differ widely in
spread (boxes and scores), each counts by its own. What a node decides by (ArgMax, TopK, Greater)
has the median gap between the first two candidates for its spread. What is behind a Softmax or a
Sigmoid hides errors on batches that are certain, so that its operand counts too, by 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from amp_rewrite.errors import AmpError, DataError
from amp_rewrite.numerics.budget.differentiated import Differentiated, End
from amp_rewrite.numerics.budget.roundings import CAST, Rounding
from amp_rewrite.numerics.compare.made_up_inputs import lost_in, nonfinite_input
from amp_rewrite.numerics.compare.masked_rows import rows_of
from amp_rewrite.numerics.compare.slices import ENOUGH, QUANTITIES, Slices
from amp_rewrite.numerics.inputs.batches import Array, Feeds
from amp_rewrite.numerics.repaint.repaint import Repainter
from amp_rewrite.runtimes.ort.time_limit import check_time

DRAWS = 8
"""How many directions are tried with each batch: n of them are off by sqrt(2 / n) of a square."""

BATCHES = 8
"""How many batches are measured at most, evenly chosen."""

_FLAT = 1e-5
"""A spread smaller than that, relative to the size, is rounding: the size itself counts."""

_DRAWS_OF_VARIANT = 2
"""How many directions are tried with an unusual input: it is there for what leaves all bounds."""


class Row(NamedTuple):
    """Which batch and which end a row of `Measured.squares` is of.

    Attributes:
        batch: The number of the batch; -1 for an unusual input.
        end: Where the error is measured.
    """

    batch: int
    end: End


@dataclass(frozen=True)
class Measured:
    """The measured errors.

    Attributes:
        roundings: The roundings.
        rows: Of which batch and end each row is.
        squares: (rows, roundings) float64: the squared relative error; infinity where it is not
            finite.
        peaks: Number of a value -> its largest magnitude over the batches.
        heights: (rows,): the largest magnitude at the end of each row, relative to the spread: on
            its batch; on any batch for an unusual input, and where it is 0.
        unreached: Number of a value -> why its rounding is not measured.
    """

    roundings: tuple[Rounding, ...]
    rows: tuple[Row, ...]
    squares: Array
    peaks: Mapping[int, float]
    heights: Array
    unreached: Mapping[int, str]


def measure(
    painter: Repainter, feeds: Sequence[Feeds], draws: int = DRAWS, *, variants: bool = False
) -> Measured:
    """Measure the roundings of a painter's model.

    Args:
        painter: The model.
        feeds: At least one batch.
        draws: How many directions are tried with each batch, at least two for each output.
        variants: Whether unusual forms of the first batch are measured as well.

    Raises:
        GradientError: The opset is too old and cannot be raised, or no output is float32.
        AmpError: The model does not run on a batch, or its outputs are finite on none.
    """
    chosen = [feeds[k] for k in _spaced(len(feeds), BATCHES)]
    plain = next((each for each in chosen if nonfinite_input(each) is None), chosen[0])
    unusual = list(_unusual(plain)) if variants else []
    model = Differentiated.of(painter, [*chosen, *unusual])
    chosen, reached, masked = _finite(model, chosen)
    scales = {end: _scale(end, reached) for end in model.ends}
    generator = np.random.default_rng(0)
    rows, squares = list[Row](), list[Array]()
    peaks: dict[int, float] = {}

    def add(batch: int, each: Feeds, values: Mapping[str, Array], count: int) -> None:
        apart = masked[batch] if batch >= 0 else {}
        drawn = _drawn(model, each, values, scales, generator, count, apart)
        for end, found, highest in drawn:
            rows.append(Row(batch, end))
            squares.append(found)
            if batch >= 0:
                peaks.update({v: max(p, peaks.get(v, 0.0)) for v, p in highest.items()})

    for batch, (each, values) in enumerate(zip(chosen, reached, strict=True)):
        check_time()
        add(batch, each, values, draws)
    for each in unusual:
        check_time()
        try:
            values = model.at_ends(each)
        except AmpError:
            continue
        if all(np.isfinite(v).all() for v in values.values()):
            add(-1, each, values, _DRAWS_OF_VARIANT)
    table = np.array(squares).reshape(len(rows), len(model.roundings))
    table[~np.isfinite(table)] = math.inf
    names = painter.flat.value_names
    own = {names[r.value]: k for k, r in enumerate(model.roundings) if r.kind == CAST}
    for of_row, row in zip(table, rows, strict=True):
        if row.end.name in model.wide and row.end.name in own:
            of_row[own[row.end.name]] = 0
    lost = _overflowing(painter, peaks)
    table[:, [rounding.value in lost for rounding in model.roundings]] = math.inf
    tops = {end: [_height(end, each) for each in reached] for end in model.ends}
    heights = [(row.batch >= 0 and tops[row.end][row.batch]) or max(tops[row.end]) for row in rows]
    heights = np.array(heights) / [float(scales[row.end].max()) for row in rows]
    return Measured(model.roundings, tuple(rows), table, peaks, heights, model.unreached)


def _overflowing(painter: Repainter, peaks: Mapping[int, float]) -> set[int]:
    """Return the values that leave the range of the type, but for what masks fill in."""
    large = [v for v, peak in peaks.items() if peak > painter.low.max]
    absorbed = painter.absorbed(painter.objects.values[v] for v in large)
    return {v for v in large if painter.objects.values[v] not in absorbed}


def _height(end: End, values: Mapping[str, Array]) -> float:
    """Return the largest finite magnitude at an end."""
    sizes = np.abs(values[end.name])
    return float(sizes[np.isfinite(sizes)].max(initial=0.0))


def _drawn(
    model: Differentiated,
    feeds: Feeds,
    values: Mapping[str, Array],
    scales: Mapping[End, Array],
    generator: np.random.Generator,
    draws: int,
    apart: Mapping[str, Array],
) -> Iterator[tuple[End, Array, dict[int, float]]]:
    """Yield the mean squared errors at each end for one batch."""
    ends = [end for end in model.ends if values[end.name].size]
    each = max(2, draws // max(1, len(ends)))
    stops = np.cumsum([min(each, values[end.name].size) for end in ends], dtype=int)
    directions = {
        end.name: np.zeros((sum(stops[-1:]), *values[end.name].shape), np.float32)
        for end in model.ends
    }
    turns = [slice(start, stop) for start, stop in zip((0, *stops), stops, strict=False)]
    for end, part in zip(ends, turns, strict=True):
        array = values[end.name]
        scale = np.broadcast_to(scales[end], array.shape)
        drawn = _directions(array, each, generator) / (scale * math.sqrt(array.size))
        if end.shared:
            drawn = drawn - drawn.mean(axis=end.shared, keepdims=True)
        if end.name in apart:
            drawn[:, apart[end.name]] = 0
        directions[end.name][part] = drawn
    if not ends:
        return
    squares, peaks = model.run(feeds, directions)
    for end, part in zip(ends, turns, strict=True):
        yield end, squares[part].mean(axis=0), peaks


def _directions(like: Array, count: int, generator: np.random.Generator) -> Array:
    """Return directions, (D, *the shape of `like`), over which a square is the mean square.

    These are `count` of independent normal numbers; or, where there are no more elements, one along
    each of them, for which the mean is exact.
    """
    if like.size > count:
        return generator.standard_normal((count, *like.shape), np.float32)
    return np.eye(like.size).reshape(-1, *like.shape) * math.sqrt(like.size)


def _finite(
    model: Differentiated, feeds: Sequence[Feeds]
) -> tuple[list[Feeds], list[Mapping[str, Array]], list[Mapping[str, Array]]]:
    """Return the batches on which the outputs are finite, the values at ends, and masked rows.

    Raises:
        DataError: There is none.
    """
    found, lost = list[tuple[Feeds, Mapping[str, Array], Mapping[str, Array]]](), ""
    names = [end.name for end in model.ends if not end.decides]
    for each in feeds:
        values = model.at_ends(each)
        masked = _masked(model, each, values)
        of_this = lost_in({name: values[name] for name in names}, masked)
        lost = lost or of_this or ""
        found += [] if of_this else [(each, values, masked)]
    if not found:
        remedy = "pass data on which it is finite"
        raise DataError("no batch says what rounding adds", found=lost, remedy=remedy)
    chosen, reached, masked = zip(*found, strict=True)
    return [*chosen], [*reached], [*masked]


def _masked(
    model: Differentiated, feeds: Feeds, values: Mapping[str, Array]
) -> Mapping[str, Array]:
    """Return the rows of outputs that attention masks whole, which must only stay finite."""
    masked = model.masked.find(partial(model.values, feeds))
    names = [end.name for end in model.ends if not end.decides]
    return {n: rows for n in names if (rows := rows_of(values[n], masked)) is not None}


def _scale(end: End, reached: Sequence[Mapping[str, Array]]) -> Array:
    """Return what errors at an end are relative to: a number, or one for each slice of an axis."""
    arrays = [each[end.name].astype(np.float64) for each in reached]
    finite = np.concatenate([a[np.isfinite(a)] for a in arrays]) if arrays else np.zeros(0)
    if end.saturates or not finite.size:
        return np.asarray(1.0)  # an error of e before it is one of e of a small probability
    if end.decides:
        gaps = np.concatenate([_gaps(a) for a in arrays])
        gaps = gaps[np.isfinite(gaps) & (gaps > 0)]
        if gaps.size:
            return np.asarray(float(np.median(gaps)))
    spread = _spread(finite)
    return _scale_of_slices(arrays, spread)


def _spread(numbers: Array) -> float:
    """Return the standard deviation of numbers, or the size of few or of equal ones."""
    size, spread = float(np.sqrt(np.mean(numbers**2))), float(numbers.std())
    is_clear = numbers.size >= ENOUGH and spread > _FLAT * size
    return spread if is_clear else (size or 1.0)


def _scale_of_slices(arrays: Sequence[Array], spread: float) -> Array:
    """Return the spread of each slice along an axis where they differ widely, else of all."""
    slices = Slices()
    for array in arrays:
        if np.isfinite(array).all():
            slices.add(array, np.zeros_like(array), array.ndim)
    total = sum(array.size for array in arrays)
    counts = {key: key[1] for key in slices.axes if key[1] <= QUANTITIES}
    enough = [key for key, count in counts.items() if total // count >= ENOUGH]
    if not enough:
        return np.asarray(spread)
    axis, count = min(enough, key=lambda key: key[1])
    parts = [[a.take(k, axis) for a in arrays if a.shape[axis] == count] for k in range(count)]
    spreads = [_spread(np.concatenate([p.reshape(-1) for p in part])) for part in parts]
    least = spread * np.finfo(np.float32).eps
    return np.maximum(spreads, least).reshape(-1, *(1,) * (-1 - axis))


def _gaps(array: Array) -> Array:
    """Return how far the second of each row's largest numbers is from the first."""
    if not array.ndim or array.shape[-1] < 2:
        return np.abs(array).reshape(-1)
    ordered = np.sort(array, axis=-1)
    return (ordered[..., -1] - ordered[..., -2]).reshape(-1)


def _unusual(feeds: Feeds) -> Iterator[Feeds]:
    """Yield a batch with its float inputs large, small, and zero."""
    for factor in (30.0, 0.03, 0.0):
        with np.errstate(over="ignore", invalid="ignore"):  # masks of -inf
            scaled = {
                name: (array * factor).astype(array.dtype) if _is_float(array) else array
                for name, array in feeds.items()
            }
        yield scaled


def _is_float(fed: object) -> bool:
    """Tell whether an input is fed with floats; a list is a sequence."""
    return isinstance(fed, np.ndarray) and fed.dtype.kind == "f"


def _spaced(count: int, most: int) -> list[int]:
    """Return the numbers of `most` of some things at most, evenly spaced."""
    if count <= most:
        return list(range(count))
    return [round(k * (count - 1) / (most - 1)) for k in range(most)]
