"""A table of numbers as text: a row an example, columns by the names in the first line."""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from amp_rewrite.errors import DataError
from amp_rewrite.training.data.data_set import DataSet
from amp_rewrite.training.data.examples import Array

CSV = (".csv", ".tsv")
_NUMBERED = re.compile(r"(?P<name>.*?)[._\[ ]?(?P<number>\d+)\]?")
_EXACT = 2.0**53
"""Integers up to that are the same in float64, which the text is read as."""


def read_csv(path: Path, names: Sequence[str] = ()) -> DataSet:
    """Return the examples of a file of numbers, separated by commas, semicolons or tabs.

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
        raise DataError(
            "the rows have another number of columns than the first line",
            where=path,
            found=table.shape[1],
            expected=len(columns),
        )
    places = _places(columns, names)
    return DataSet({name: _typed(table[:, at]) for name, at in places.items()}, path)


def _header(path: Path) -> tuple[list[str], str]:
    """Return the names in the first line, and what separates them.

    Raises:
        DataError: The first line has none, or two that are the same.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            first = next(lines, "")
            separator = max("\t;,", key=first.count)  # a comma where there is a single column
            columns = [name.strip() for name in next(csv.reader([first], delimiter=separator), [])]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError("the data cannot be read", where=path, found=error) from error
    if not columns or not all(columns) or all(map(_is_number, columns)):
        raise DataError(
            "the first line has no names",
            where=path,
            found=first.strip()[:40] or "nothing",
            expected="a name for each column, those of the step's inputs",
        )
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise DataError("two columns have one name", where=path, found=repr(twice))
    return columns, separator


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _places(columns: Sequence[str], names: Sequence[str]) -> dict[str, int | list[int]]:
    """Return input -> the place of its column, or the places of those that are one row."""
    missing = [name for name in names if name not in columns]
    others = [at for at, column in enumerate(columns) if column not in names]
    if len(missing) == 1 and others:
        own = {name: columns.index(name) for name in names if name in columns}
        return {**own, missing[0]: others}
    found: dict[str, int | list[int]] = {}
    for name, places in _rows(columns, names).items():
        if len(places) > 1 and name not in columns:
            found[name] = places
        else:
            found |= {columns[at]: at for at in places}
    return found


def _rows(columns: Sequence[str], names: Sequence[str]) -> dict[str, list[int]]:
    """Return the places of columns by their names without numbers, but for names of inputs."""
    found: dict[str, list[int]] = {}
    for at, column in enumerate(columns):
        numbered = None if column in names else _NUMBERED.fullmatch(column)
        name = column if numbered is None else numbered["name"]
        found.setdefault(name or column, []).append(at)
    return found


def _typed(numbers: Array) -> Array:
    whole = bool((np.mod(numbers, 1) == 0).all() and (np.abs(numbers) <= _EXACT).all())
    return numbers.astype(np.int64 if whole else np.float32)
