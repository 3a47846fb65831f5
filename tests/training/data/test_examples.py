"""Examples from files, folders, arrays and loaders: which are in which batch; what is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amp_rewrite.errors import DataError
from amp_rewrite.training.data.as_examples import as_examples
from amp_rewrite.training.data.data_set import DataSet
from amp_rewrite.training.data.examples import Examples
from amp_rewrite.training.data.prefetch import prefetched
from amp_rewrite.training.data.stream import Stream

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

X = np.arange(46, dtype=np.float32).reshape(23, 2)
T = np.arange(23)
NAMES = ("x", "t")


def table() -> Any:
    column = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 2)
    return pa.table({"x": column, "t": pa.array(T)})


def made(kind: str, path: Path) -> Any:
    """Return the same examples in another form."""
    if kind == "mapping":
        return {"x": X, "t": T}
    if kind == "tuple":
        return (X, T)
    if kind == "npz":
        np.savez(path / "data.npz", x=X, t=T)
        return path / "data.npz"
    if kind == "npy folder":
        np.save(path / "x.npy", X)
        np.save(path / "t.npy", T)
        return path
    if kind == "parquet":
        parquet.write_table(table(), path / "data.parquet", row_group_size=5)
        return str(path / "data.parquet")
    if kind == "arrow":
        with pa.ipc.new_file(path / "data.arrow", table().schema) as file:
            file.write_table(table(), max_chunksize=4)
        return path / "data.arrow"
    if kind == "arrow stream":
        with pa.ipc.new_stream(path / "data.arrow", table().schema) as file:
            file.write_table(table(), max_chunksize=4)
        return path / "data.arrow"
    if kind == "lists":  # as pandas and datasets write them
        lists = table().set_column(0, "x", pa.array(list(X), pa.list_(pa.float32())))
        parquet.write_table(lists, path / "data.parquet", row_group_size=5)
        return path / "data.parquet"
    half = table()
    parquet.write_table(half.slice(0, 11), path / "0.parquet", row_group_size=4)
    parquet.write_table(half.slice(11), path / "1.parquet", row_group_size=4)
    return path


KINDS = (
    *("mapping", "tuple", "npz", "npy folder", "parquet", "arrow", "arrow stream"),
    *("lists", "parquet folder"),
)


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


def test_a_folder_is_mapped_and_not_read(tmp_path: Path) -> None:
    """A file with a hole, far larger than what a batch reads."""
    shape = (2**20, 1024)
    np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.float32, shape=shape)
    examples = as_examples(tmp_path, ("x",))
    assert examples.size == 2**20
    first = next(iter(examples.epoch(8, seed=0)))
    assert first["x"].shape == (8, 1024)
    assert isinstance(examples, DataSet)
    assert examples.mapped


def test_fixed_shape_tensors_and_nested_lists_have_their_shapes(tmp_path: Path) -> None:
    images = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
    inner = pa.FixedSizeListArray.from_arrays(pa.array(images.reshape(-1)), 4)
    nested = pa.FixedSizeListArray.from_arrays(inner, 3)
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(images)
    with_both = pa.table({"nested": nested, "tensor": tensor, "b": pa.array([True, False])})
    with pa.ipc.new_file(tmp_path / "t.feather", with_both.schema) as file:
        file.write_table(with_both)
    (found,) = as_examples(tmp_path / "t.feather", ()).epoch(2)
    np.testing.assert_array_equal(found["nested"], images)
    np.testing.assert_array_equal(found["tensor"], images)
    assert found["b"].tolist() == [True, False]


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


def test_tensors_come_by_dlpack_without_a_copy() -> None:
    class Tensor:
        def __dlpack_device__(self) -> tuple[int, int]:
            return X.__dlpack_device__()

        def __dlpack__(self, **options: Any) -> Any:
            return X.__dlpack__(**options)

    (found,) = as_examples([[Tensor()]], ("x",)).epoch(1)
    assert np.shares_memory(found["x"], X)


def test_a_tensor_that_cannot_be_handed_over_is_left_to_the_session() -> None:
    class Tensor:
        def __dlpack_device__(self) -> tuple[int, int]:
            return X.__dlpack_device__()

        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("it requires a gradient")

    tensor = Tensor()
    (found,) = as_examples([[tensor]], ("x",)).epoch(1)
    assert found["x"] is tensor


def test_a_source_that_ends_before_the_place_where_an_epoch_goes_on_is_an_error() -> None:
    examples = as_examples(lambda: iter([{"t": T}]), NAMES)
    assert list(examples.epoch(1, start=1)) == []
    with pytest.raises(DataError, match=r"fewer batches than were seen .* found 1; .* at least 2"):
        list(examples.epoch(1, start=2))


def test_columns_in_another_order_are_the_same_columns(tmp_path: Path) -> None:
    _two_files(tmp_path, table(), table().select(["t", "x"]))
    assert [len(part) for part in rows(as_examples(tmp_path, NAMES).epoch(40))] == [40, 6]


def test_an_iterator_that_was_read_is_an_error_that_says_what_to_pass() -> None:
    examples = as_examples(iter([{"t": T}]), NAMES)
    assert len(list(examples.epoch(1))) == 1
    with pytest.raises(DataError, match="read only once; pass a function"):
        list(examples.epoch(1))


def write(path: Path, name: str, content: bytes) -> Path:
    (path / name).write_bytes(content)
    return path / name


def _with_nulls(path: Path) -> Path:
    parquet.write_table(pa.table({"t": pa.array([1, None])}), path / "n.parquet")
    return path / "n.parquet"


def _with_words(path: Path) -> Path:
    parquet.write_table(pa.table({"t": pa.array(["a", "b"])}), path / "w.parquet")
    return path / "w.parquet"


def _with_lists(path: Path) -> Path:
    parquet.write_table(pa.table({"t": pa.array([[1], [1, 2]])}), path / "l.parquet")
    return path / "l.parquet"


def _with_lists_by_group(path: Path) -> Path:
    parquet.write_table(pa.table({"t": [[1], [2, 3]]}), path / "g.parquet", row_group_size=1)
    return path / "g.parquet"


def _two_files(path: Path, first: Any, second: Any) -> Path:
    parquet.write_table(first, path / "a.parquet")
    parquet.write_table(second, path / "b.parquet")
    return path


def _other_name(path: Path) -> Path:
    return _two_files(path, table(), table().rename_columns(["y", "t"]))


def _other_type(path: Path) -> Path:
    return _two_files(path, table(), table().set_column(1, "t", pa.array(T.astype(np.int32))))


def _other_shape(path: Path) -> Path:
    column = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)[:23]), 1)
    return _two_files(path, table(), table().set_column(0, "x", column))


def _two_of_a_name(path: Path) -> Path:
    parquet.write_table(pa.table([T, T], names=["t", "t"]), path / "d.parquet")
    return path / "d.parquet"


def _tensors(path: Path, rows: list[Any], kind: Any = None) -> Path:
    kind = pa.float32() if kind is None else kind
    storage = pa.array(rows, pa.list_(kind, 6))
    tensors = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(kind, (2, 3)), storage)
    parquet.write_table(pa.table({"x": tensors}), path / "f.parquet")
    return path / "f.parquet"


def _objects(path: Path) -> Path:
    np.save(path / "x.npy", np.array([{}], object), allow_pickle=True)
    return path


REFUSED = {
    "nothing": (lambda _: None, "no data; found an object of type NoneType"),
    "an unknown suffix": (lambda p: write(p, "x.txt", b"1"), "unknown kind of data"),
    "no file": (lambda p: p / "none.npz", "none.npz"),
    "an empty folder": (lambda p: p, "hold no examples"),
    "no parquet": (lambda p: write(p, "x.parquet", b"PAR1 not"), "the data cannot be read"),
    "no arrow": (lambda p: write(p, "x.arrow", b"ARROW1"), "the data cannot be read"),
    "no npy": (lambda p: write(p, "x.npy", b"\x93NUMPY").parent, "the array cannot be read"),
    "pickled objects": (_objects, "the array cannot be read"),
    "nulls": (_with_nulls, "'t' has rows without a value; found 1 nulls"),
    "a tensor that is null": (
        lambda p: _tensors(p, [[1] * 6, None]),
        "'x' has rows without a value; found 1 nulls|Expected all lists to be of size",
    ),
    "a null in a tensor": (
        lambda p: _tensors(p, [[1, None, 3, 4, 5, 6]]),
        "'x' has rows without a value; found 1 nulls",
    ),
    "tensors of bools": (
        lambda p: _tensors(p, [[True] * 6], pa.bool_()),
        "the data cannot be read; found tensors of bools",
    ),
    "no rows": (lambda p: _tensors(p, []), "f.parquet: the data hold no examples"),
    "columns of other names": (
        _other_name,
        r"b\.parquet: the files have different columns: 'x'; found no such column; "
        r"expected float \[2\], as in a\.parquet",
    ),
    "columns of other types": (
        _other_type,
        r"different columns: 't'; found int32 \[\]; expected int64 \[\]",
    ),
    "columns of other shapes": (
        _other_shape,
        r"different columns: 'x'; found float \[1\]; expected float \[2\]",
    ),
    "two columns of a name": (_two_of_a_name, "two columns have one name; found 't'"),
    "words": (_with_words, "'t' holds no numbers of one shape; found string"),
    "lists": (_with_lists, "'t' has lists of different lengths; found 1 and 2"),
    "lists that agree in each row group alone": (
        _with_lists_by_group,
        r"the rows of 't' have different shapes; found \[1\] and \[2\]",
    ),
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


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_items_keep_their_order_and_errors_their_place(ahead: int) -> None:
    def items() -> Iterator[int]:
        yield from range(10)
        raise DataError("the eleventh is missing")

    found: list[int] = []
    with pytest.raises(DataError, match="eleventh"):
        found.extend(prefetched(items(), ahead))
    assert found == list(range(10))


def test_a_thread_that_nobody_reads_from_ends() -> None:
    reader = prefetched(iter(range(10**9)), 2)
    assert next(reader) == 0
    reader.close()
    assert not [t for t in threading.enumerate() if "prefetch" in t.name]


def test_examples_are_passed_through() -> None:
    stream: Examples = Stream([], NAMES)
    assert as_examples(stream, ()) is stream
