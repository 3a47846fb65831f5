"""Examples from files, arrays and loaders: which are in which batch; what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amp_rewrite.errors import DataError
from amp_rewrite.training.data.as_examples import Examples, Stream, as_examples

X = np.arange(46, dtype=np.float32).reshape(23, 2)
T = np.arange(23)
NAMES = ("x", "t")


def made(kind: str, path: Path) -> Any:
    """Return the same examples in another form."""
    if kind == "mapping":
        return {"x": X, "t": T}
    if kind == "tuple":
        return (X, T)
    np.savez(path / "data.npz", x=X, t=T)
    return path / "data.npz"


KINDS = ("mapping", "tuple", "npz")


def rows(batches: Iterator[dict[str, Any]]) -> list[list[int]]:
    """Return the examples of each batch, having checked that rows stay together."""
    found: list[list[int]] = []
    for feeds in batches:
        np.testing.assert_array_equal(feeds["x"][:, 0], feeds["t"] * 2)
        assert feeds["x"].dtype == np.float32
        assert feeds["t"].dtype == np.int64
        found.append(feeds["t"].tolist())
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_form_gives_the_same_batches_in_the_stored_order(kind: str, tmp_path: Path) -> None:
    examples = as_examples(made(kind, tmp_path), NAMES)
    assert examples.size == 23
    assert (examples.steps(4), examples.steps(4, drop_last=True)) == (6, 5)
    expected = [list(range(k, min(k + 4, 23))) for k in range(0, 23, 4)]
    assert rows(examples.epoch(4)) == expected
    assert rows(examples.epoch(4, start=2)) == expected[2:]
    assert rows(examples.epoch(4, drop_last=True)) == expected[:-1]
    assert rows(examples.epoch(100)) == [list(range(23))]
    assert rows(examples.epoch(4, start=6)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_follows_from_seed_and_number_wherever_it_begins(
    kind: str, tmp_path: Path
) -> None:
    examples = as_examples(made(kind, tmp_path), NAMES)
    whole = rows(examples.epoch(4, seed=3, number=1))
    assert sorted(chain(*whole)) == list(range(23))
    assert [*chain(*whole)] != list(range(23))
    assert rows(examples.epoch(4, seed=3, number=1)) == whole
    for start in range(7):
        assert rows(examples.epoch(4, seed=3, number=1, start=start)) == whole[start:]
    assert rows(examples.epoch(4, seed=3, number=2)) != whole
    assert rows(examples.epoch(4, seed=4, number=1)) != whole


@pytest.mark.parametrize("kind", KINDS)
def test_data_are_told_from_others_by_their_signature(kind: str, tmp_path: Path) -> None:
    given = made(kind, tmp_path)
    assert as_examples(given, NAMES).signature == as_examples(given, NAMES).signature
    other = as_examples({"x": X + 1, "t": T}, NAMES)
    assert as_examples(given, NAMES).signature != other.signature


class Loader:
    """As PyTorch's DataLoader: a length, a sampler, batches anew for each epoch."""

    def __init__(self) -> None:
        self.sampler = self
        self.epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return 6

    def __iter__(self) -> Iterator[Any]:
        order = np.random.default_rng(self.epoch).permutation(23)
        for k in range(0, 23, 4):
            yield X[order[k : k + 4]], T[order[k : k + 4]].tolist()


def test_a_loader_has_batches_and_epochs_of_its_own() -> None:
    examples = as_examples(Loader(), NAMES)
    assert (examples.size, examples.steps(999)) == (None, 6)
    whole = list(examples.epoch(1, number=1))
    assert [len(b["t"]) for b in whole] == [4, 4, 4, 4, 4, 3]
    left = list(examples.epoch(1, number=1, start=2))
    assert [b["t"] for b in left] == [b["t"] for b in whole[2:]]
    assert [b["t"] for b in examples.epoch(1, number=2)] != [b["t"] for b in whole]
    assert len(list(examples.epoch(1, drop_last=True))) == 5


def test_a_function_gives_each_epoch_an_iterator() -> None:
    examples = as_examples(lambda: ({"t": T[k : k + 5]} for k in range(0, 23, 5)), NAMES)
    for _ in range(2):
        assert [len(b["t"]) for b in examples.epoch(1)] == [5, 5, 5, 5, 3]


def test_a_source_that_ends_before_the_place_where_an_epoch_goes_on_is_an_error() -> None:
    examples = as_examples(lambda: iter([{"t": T}]), NAMES)
    assert list(examples.epoch(1, start=1)) == []
    with pytest.raises(DataError, match=r"fewer batches than were seen .* found 1; .* at least 2"):
        list(examples.epoch(1, start=2))


def test_an_iterator_that_was_read_is_an_error_that_says_what_to_pass() -> None:
    examples = as_examples(iter([{"t": T}]), NAMES)
    assert len(list(examples.epoch(1))) == 1
    with pytest.raises(DataError, match="read only once; pass a function"):
        list(examples.epoch(1))


def write(path: Path, name: str, content: bytes) -> Path:
    (path / name).write_bytes(content)
    return path / name


REFUSED = {
    "nothing": (lambda _: None, "no data; found an object of type NoneType"),
    "an unknown suffix": (lambda p: write(p, "x.txt", b"1"), "unknown kind of data"),
    "no file": (lambda p: p / "none.npz", "none.npz"),
    "a folder": (lambda p: p, "unknown kind of data; found a folder; expected .npz or .csv"),
    "too few arrays": (lambda _: (X,), "another number of arrays .* found 1; expected 2: x, t"),
    "other lengths": (lambda _: (X, T[:3]), "different numbers of examples"),
    "ragged": (lambda _: {"x": [[1], [1, 2]]}, "x: no array"),
    "strings": (lambda _: {"x": ["a"]}, "no array of numbers; found elements of type"),
    "a batch of one tensor": (lambda _: [(X,)], "batch 0 has another number of tensors"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_data_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    make, message = REFUSED[case]
    with pytest.raises(DataError, match=message) as caught:
        list(as_examples(make(tmp_path), NAMES).epoch(4))
    assert "\n" not in str(caught.value)


def test_examples_are_passed_through() -> None:
    stream: Examples = Stream([], NAMES)
    assert as_examples(stream, ()) is stream
