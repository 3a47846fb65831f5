"""Labels and data that a step can do nothing useful with are found by name, in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import amp_rewrite as amp
from amp_rewrite.errors import FeedError, OptionError

CLASSIFIER = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 3] x) => (float[N, 4] y) <float[3, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}> {
    y = MatMul(x, w)
}"""
TOKENS = """<ir_version: 8, opset_import: ["": 17]>
g (int64[N, T] ids) => (float[N, T, 3] y)
<float[5, 3] table = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6}> {
    flat = Identity(ids)
    y = Gather(table, flat)
}"""
OWN_LOSS = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 3] x, int32[N, 1] t) => (float loss)
<float[3, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}> {
    y = MatMul(x, w)
    log = LogSoftmax(y)
    axes = Constant<value_ints = [1]>()
    flat = Squeeze(t, axes)
    labels = Cast<to = 7>(flat)
    loss = NegativeLogLikelihoodLoss<ignore_index = -100>(log, labels)
}"""


def loaded(text: str) -> Any:
    return amp.load(onnx.parser.parse_model(text))


def classifier(**options: Any) -> amp.TrainingSession:
    loss = amp.losses.softmax_cross_entropy(loaded(CLASSIFIER), "y", "t")
    return amp.TrainingSession(amp.optimizers.Adam().minimize(loss), **options)


def of(text: str, **options: Any) -> amp.TrainingSession:
    return amp.TrainingSession(
        amp.optimizers.Adam().minimize(amp.value(loaded(text), "loss")), **options
    )


def batch(labels: Any, kind: Any = np.int64) -> dict[str, Any]:
    return {"x": np.ones((len(labels), 3), np.float32), "t": np.array(labels, kind)}


@pytest.mark.parametrize("kind", ["run", "evaluate"])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 4], r"'t' holds a class that does not exist; found 4 at \[1\]; 1 of 2 are wrong"),
        ([-1, 3], r"found -1 at \[0\]; 1 of 2 are wrong; expected integers from 0 to 3"),
        ([1, 9, -7], r"found 9 at \[1\]; 2 of 3 are wrong; .* ignore it|ignore this number"),
    ],
)
def test_class_numbers_out_of_range_are_refused(kind: str, labels: Any, message: str) -> None:
    with classifier() as session:
        session.run(batch([0, 3]))
        before = session.state_dict()
        with pytest.raises(FeedError, match=message):
            getattr(session, kind)(batch(labels))
        after = session.state_dict()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)


def test_class_numbers_in_host_memory_of_the_runtime_are_looked_at() -> None:
    with classifier() as session:
        feeds = batch([0, 7])
        feeds["t"] = onnxruntime.OrtValue.ortvalue_from_numpy(feeds["t"])
        with pytest.raises(FeedError, match="found 7"):
            session.run(feeds)


def test_labels_of_a_loss_of_the_models_own_are_followed_to_their_input() -> None:
    with of(OWN_LOSS) as session:
        session.run(batch([[0], [-100]], np.int32))
        text = r"'t' holds a class that does not exist; found -1 at \[1, 0\].* 0 to 3, or -100"
        with pytest.raises(FeedError, match=text):
            session.run(batch([[0], [-1]], np.int32))
        text = (
            "holds no class that counts: the mean of nothing is NaN; found -100, which is ignored"
        )
        with pytest.raises(FeedError, match=text):
            session.run(batch([[-100], [-100]], np.int32))


def test_an_ignored_label_is_allowed_where_the_loss_is_a_sum() -> None:
    loss = amp.losses.softmax_cross_entropy(
        loaded(CLASSIFIER), "y", "t", ignore_index=7, reduction="sum"
    )
    with amp.TrainingSession(amp.optimizers.Adam().minimize(loss)) as session:
        assert session.run(batch([7, 7]))["loss"] == 0
        with pytest.raises(FeedError, match=r"0 to 3, or 7"):
            session.run(batch([7, 8]))


def test_rows_of_a_table_that_do_not_exist_are_refused() -> None:
    model = loaded(TOKENS)
    loss = amp.losses.softmax_cross_entropy(model, "y", "t")
    with amp.TrainingSession(amp.optimizers.Adam().minimize(loss)) as session:
        fine = {"ids": np.array([[-5, 4]]), "t": np.array([[0, 2]])}
        session.run(fine)
        for wrong in (5, -6):
            text = rf"'ids' holds a row that does not exist; found {wrong} at \[0, 1\].*-5 to 4"
            with pytest.raises(FeedError, match=text):
                session.run({**fine, "ids": np.array([[0, wrong]])})


@pytest.mark.parametrize("kind", ["run", "evaluate"])
def test_an_empty_batch_is_refused(kind: str) -> None:
    with classifier() as session, pytest.raises(FeedError, match=r"no examples; found x: \[0, 3\]"):
        getattr(session, kind)(batch([]))


def fed(value: Any, kind: Any = np.float32) -> dict[str, Any]:
    feeds = batch([0, 1])
    feeds["x"] = feeds["x"].astype(kind)
    feeds["x"][1, 2] = value
    return feeds


def test_numbers_that_are_not_finite_are_fed_as_they_are() -> None:
    with classifier() as session:
        assert np.isnan(session.run(fed(np.nan))["loss"])


@pytest.mark.parametrize(
    ("labels", "dtype", "message"),
    [
        ([0.0, 1.0], np.float32, "'t' has the wrong element type; found float32; expected int64"),
        ([True, False], np.bool_, "found bool; expected int64"),
        ([1.5, 0], None, "found float64; expected int64"),
        ([2**70, 0], None, "'t' has the wrong element type; found"),
    ],
)
def test_labels_of_another_kind_are_not_cast(labels: Any, dtype: Any, message: str) -> None:
    feeds = batch([0, 1])
    feeds["t"] = labels if dtype is None else np.array(labels, dtype)
    with classifier() as session, pytest.raises(FeedError, match=message):
        session.run(feeds)


def test_numbers_are_cast_where_that_loses_no_more_than_digits() -> None:
    feeds, integers = batch([0, 1]), np.array([[3, 2, 1], [0, 1, 2]])
    with classifier() as session:
        session.run({**feeds, "x": integers.astype(np.float32)})
        expected = session.state_dict()
    for dtype in (np.float64, np.float16, np.int64, np.uint8):
        wide = {"x": integers.astype(dtype), "t": np.array([0, 1], np.int32)}
        with classifier() as session:
            session.run(wide)
            found = session.state_dict()
        for name, state in expected.items():
            np.testing.assert_array_equal(found[name], state)


@pytest.mark.parametrize(
    "x", [np.array([[2**24 + 1, 0, 0], [0, 0, 0]]), np.array([[1e300, 0, 0], [0, 0, 0]])]
)
def test_numbers_that_the_type_cannot_hold_are_not_cast(x: Any) -> None:
    with classifier() as session, pytest.raises(FeedError, match="'x' has the wrong element type"):
        session.run({**batch([0, 1]), "x": x})


@pytest.mark.parametrize("number", [1e300, -1e39, 16777217])
def test_numbers_in_lists_that_the_type_cannot_hold_are_refused(number: float) -> None:
    feeds = {"x": [[number if number < 1e9 else 0, 0, 0], [number, 0, 0]], "t": [0, 1]}
    if number == 16777217:
        feeds["x"] = [[number, 0, 0], [0, 0, 0]]
    with classifier() as session, pytest.raises(FeedError, match="a number that its element type"):
        session.run(feeds)


@pytest.mark.parametrize(
    ("state", "value"), [("global_step", 1.5), ("global_step", np.float32(2)), ("w", "a")]
)
def test_a_state_takes_no_number_of_another_kind(state: str, value: Any) -> None:
    with classifier() as session, pytest.raises(OptionError, match=f"{state}: a state cannot take"):
        session.assign_state(state, value)
