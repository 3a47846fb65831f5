"""A table of numbers as text: a row an example, columns by the names in the first line."""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from amp_rewrite.errors import DataError
from amp_rewrite.numerics.emulate.emulated_feeds import Array, FedInputs, Feeds, FeedSpec

CSV = (".csv", ".tsv")
"""How the names of such files end."""
_ROWS = 32
"""Rows of a batch, where the model says nothing."""
_NUMBERED = re.compile(r"(?P<name>.*?)[._\[ ]?(?P<number>\d+)\]?")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?(nan|inf(inity)?)", re.IGNORECASE)
_EXACT = 2.0**53
"""Integers up to that are the same in float64, which the text is read as."""


def batches_of_table(path: Path, fit: FedInputs) -> Iterator[Feeds]:
    """Yield the batches of a file of numbers: as many rows as the first input's first dimension.

    A row takes the shape that its input declares after the first axis. If the first dimension is
    fixed, rows that do not fill the last batch are left out.

    Raises:
        DataError: As `read_table`; or the model has an input without a column, or too few rows.
    """
    table = read_table(path, fit.needed)
    missing = [name for name in fit.needed if name not in table]
    if missing:
        raise DataError(
            f"the data lack the input {missing[0]!r}",
            where=path,
            found=", ".join(table),
            expected=f"a column of that name, or {missing[0]}0, {missing[0]}1, ... for its rows",
        )
    rows = len(next(iter(table.values())))
    length = fit.length or min(rows, _ROWS)
    if rows < length:
        what = "fewer rows than a batch of the model has"
        raise DataError(what, where=path, found=rows, expected=f"{length} or more")
    shaped = {name: _shape_rows(array, fit.specs.get(name)) for name, array in table.items()}
    for at in range(0, rows, length):
        if fit.length is None or at + length <= rows:
            yield {name: array[at : at + length] for name, array in shaped.items()}


def _shape_rows(array: Array, spec: FeedSpec | None) -> Array:
    """Return the rows in the shape that an input declares, where they have as many elements."""
    declared = None if spec is None else spec.shape
    if declared is None or len(declared) <= array.ndim:
        return array
    sizes = [size if isinstance(size, int) else -1 for size in declared[1:]]
    per_row = array[0].size
    fixed = int(np.prod([size for size in sizes if size > 0]))
    if sizes.count(-1) > 1 or per_row % fixed or (-1 not in sizes and per_row != fixed):
        return array
    return array.reshape(len(array), *sizes)


def read_table(path: Path, names: Sequence[str] = ()) -> Mapping[str, Array]:
    """Return the columns of a file of numbers, separated by commas, semicolons or tabs.

    A column belongs to the input of its name. Columns of one name that are numbered on (`x0`,
    `x_1`, `x.2`, `x[3]`) are the elements of one row. Where a single input has no column, all
    columns that are no input's are its rows, in their order. Columns of integers are integers.

    Raises:
        DataError: It has no line of names, or a row holds something else than a number for each.
    """
    columns, separator = _header(path)
    try:
        with path.open(encoding="utf-8-sig") as lines, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of no rows, which are an error below
            table = np.loadtxt(
                lines, delimiter=separator, skiprows=1, ndmin=2, comments=None, quotechar='"'
            )
    except (OSError, ValueError) as error:
        raise DataError(
            "the data cannot be read",
            where=path,
            found=str(error).splitlines()[0],
            expected="a number in every column of every row",
            remedy="number classes from 0, and fill what is missing",
        ) from error
    if not table.size:
        raise DataError("the data hold no examples", where=path)
    if table.shape[1] != len(columns):
        what = "the rows have another number of columns than the first line"
        raise DataError(what, where=path, found=table.shape[1], expected=len(columns))
    places = _places(columns, names)
    return {name: _type_numbers(table[:, at]) for name, at in places.items()}


def _header(path: Path) -> tuple[list[str], str]:
    """Return the names in the first line, and what separates them."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            first = next(lines, "")
            separator = max("\t;,", key=first.count)  # a comma where there is a single column
            columns = [name.strip() for name in next(csv.reader([first], delimiter=separator), [])]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError("the data cannot be read", where=path, found=error) from error
    if not columns or not all(columns) or all(map(_NUMBER.fullmatch, columns)):
        raise DataError(
            "the first line has no names",
            where=path,
            found=first.strip()[:40] or "nothing",
            expected="a name for each column: the names of the inputs",
        )
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise DataError("two columns have one name", where=path, found=repr(twice))
    return columns, separator


def _places(columns: Sequence[str], names: Sequence[str]) -> dict[str, int | list[int]]:
    """Return input -> the place of its column, or the places of those that are one row."""
    missing = [name for name in names if name not in columns]
    others = [at for at, column in enumerate(columns) if column not in names]
    if len(missing) == 1 and others:
        own = {name: columns.index(name) for name in names if name in columns}
        return {**own, missing[0]: others}
    rows: dict[str, list[int]] = {}
    for at, column in enumerate(columns):
        numbered = None if column in names else _NUMBERED.fullmatch(column)
        rows.setdefault((numbered and numbered["name"]) or column, []).append(at)
    places_of: dict[str, int | list[int]] = {}
    for name, places in rows.items():
        if len(places) > 1 and name not in columns:
            places_of[name] = places
        else:
            places_of |= {columns[at]: at for at in places}
    return places_of


def _type_numbers(numbers: Array) -> Array:
    whole = bool((np.mod(numbers, 1) == 0).all() and (np.abs(numbers) <= _EXACT).all())
    return numbers.astype(np.int64 if whole else np.float32)
