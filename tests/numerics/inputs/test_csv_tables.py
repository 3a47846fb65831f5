"""CSV files as data: which column is which input, and what is no table of numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.errors import DataError
from amp_rewrite.numerics.inputs.batches import batches, count
from amp_rewrite.numerics.inputs.csv_tables import read_table

NAMES = ("x", "t")
ROWS = [[0.5, 1.5, 3], [2.5, 3.5, 4]]


def read(path: Path, text: str, suffix: str = ".csv", names: tuple[str, ...] = NAMES):
    file = path / f"data{suffix}"
    file.write_text(text, "utf-8")
    return read_table(file, names)


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


PICTURE = "g (float[n,1,2,2] x, float[n] s) => (float[n,1,2,2] y) { y = Relu(x) z = Relu(s) }"


def model_of(text: str) -> ir.Model:
    return ir.from_proto(parse(text))


def test_rows_take_the_shapes_of_the_inputs(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text("x0,x1,x2,x3,s\n" + "1,2,3,4,.5\n" * 40, "utf-8")
    made = list(batches(file, model_of(PICTURE)))
    assert [batch["x"].shape for batch in made] == [(32, 1, 2, 2), (8, 1, 2, 2)]
    assert made[1]["s"].tolist() == [0.5] * 8
    assert count(file) is None


def test_a_fixed_batch_takes_as_many_rows_and_leaves_out_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "data.tsv"
    file.write_text("a\tb\n1\t2\n3\t4\n5\t6\n", "utf-8")
    model = model_of("g (float[2,2] x) => (float[2,2] y) { y = Relu(x) }")
    assert [batch["x"].tolist() for batch in batches(file, model)] == [[[1, 2], [3, 4]]]


LACKING = {
    "a column": ("x0,t\n1,2\n", "lack the input 'x'.*found x0, t.*x0, x1"),
    "rows": ("x0,x1,x2,x3,s\n", "hold no examples"),
    "elements": ("x0,x1,x2,s\n1,2,3,4\n", r"another shape; found \[1, 3\]"),
}


@pytest.mark.parametrize("case", LACKING)
def test_a_table_that_lacks_something_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    text, said = LACKING[case]
    file = tmp_path / "data.csv"
    file.write_text(text, "utf-8")
    with pytest.raises(DataError, match=said):
        list(batches(file, model_of(PICTURE)))


def test_convert_calibrates_and_verifies_on_a_table(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text("a,b,c\n" + "".join(f"{i},{-i},{i / 4}\n" for i in range(40)), "utf-8")
    model = parse("g (float[n,3] x) => (float[n,3] y) { y = Softmax(x) }")
    assert amp.convert(model, file).verification.feeds == 2
