"""CSV files as data: which column is which input, and what is no table of numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from amp_rewrite.errors import DataError
from amp_rewrite.training.data.as_examples import read_examples

NAMES = ("x", "t")
ROWS = [[0.5, 1.5, 3], [2.5, 3.5, 4]]


def read(path: Path, text: str, suffix: str = ".csv", names: tuple[str, ...] = NAMES):
    file = path / f"data{suffix}"
    file.write_text(text, "utf-8")
    (batch,) = read_examples(file, names).epoch(100)
    return batch


HEADERS = {
    "numbered": "x0,x1,t",
    "with points": "x.0,x.1,t",
    "with underscores": "x_1,x_2,t",
    "with brackets": "x[0],x[1],t",
    "in quotes": '"x 1","x 2","t"',
    "after a mark of the encoding": "\ufeffx0,x1,t",
    "features of names of their own": "width,height,t",
    "pixels": "pixel0,pixel1,t",
}


@pytest.mark.parametrize("header", HEADERS)
def test_columns_find_their_inputs(header: str, tmp_path: Path) -> None:
    batch = read(tmp_path, HEADERS[header] + "\n0.5,1.5,3\n2.5,3.5,4\n")
    assert {name: a.tolist() for name, a in batch.items()} == {
        "x": [row[:2] for row in ROWS],
        "t": [3, 4],
    }
    assert (batch["x"].dtype, batch["t"].dtype) == (np.float32, np.int64)


@pytest.mark.parametrize(("separator", "suffix"), [(";", ".csv"), ("\t", ".tsv")])
def test_other_separators_are_known_by_the_first_line(
    separator: str, suffix: str, tmp_path: Path
) -> None:
    lines = [["x0", "x1", "t"], *ROWS]
    text = "\n".join(separator.join(map(str, line)) for line in lines)
    assert read(tmp_path, text, suffix)["x"].tolist() == [[0.5, 1.5], [2.5, 3.5]]


def test_inputs_of_numbered_names_and_columns_that_only_look_numbered_are_themselves(
    tmp_path: Path,
) -> None:
    batch = read(tmp_path, "x,x1,y2\n1,2,3\n", names=("x", "x1", "y", "z"))
    assert {name: a.tolist() for name, a in batch.items()} == {"x": [1], "x1": [2], "y2": [3]}


REFUSED = {
    "nothing": ("", "the first line has no names; found nothing"),
    "numbers alone": ("1,2,3\n4,5,6\n", "the first line has no names; found 1,2,3"),
    "no rows": ("x,t\n", "the data hold no examples"),
    "a word": ("x,t\n1,cat\n", "could not convert string 'cat' .*number classes from 0"),
    "a gap": ("x,t\n1,\n", "could not convert string ''"),
    "a short row": ("x,t\n1,2\n3\n", "number of columns changed"),
    "short rows": ("x,t,u\n1,2\n3,4\n", "another number of columns than the first .*found 2"),
    "a name twice": ("x,x\n1,2\n", "two columns have one name; found 'x'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_table_of_numbers_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    text, message = REFUSED[case]
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)
