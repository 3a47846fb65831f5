"""Data sets, metrics, evaluation, and going on where training stopped."""

import csv
from typing import Any

import numpy as np
import onnx
import pytest
from handmade import batch, model_of, train_op

import amp_rewrite as amp
from amp_rewrite.errors import (
    CheckpointError,
    DataError,
    DivergenceError,
    OptionError,
    SaveError,
)
from amp_rewrite.loop.epoch_loop import resume, train
from amp_rewrite.loop.evaluation import evaluate
from amp_rewrite.loop.plan_and_progress import Plan
from amp_rewrite.loop.ready_callbacks import CSVLogger, Watch
from amp_rewrite.training.data.as_examples import DataSet
from amp_rewrite.training.session.training_session import TrainingSession

DATA = DataSet(batch(1, 50))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "no examples"),
        ({"x": np.zeros((0, 2))}, "no examples"),
        ({"x": np.zeros(2), "t": np.zeros(3)}, "different numbers of examples; found x: 2, t: 3"),
    ],
)
def test_data_that_are_no_data_set_are_errors(arrays, message):
    with pytest.raises(DataError, match=message):
        DataSet(arrays)


@pytest.mark.parametrize("every", [0, 3])
def test_an_interrupted_run_goes_on_bit_for_bit(tmp_path, every):
    path = tmp_path / "c.safetensors"

    class Stop(Exception):  # noqa: N818 it is no error
        pass

    def stop(progress):
        if progress.step == 10:
            raise Stop

    plan = Plan(epochs=4, batch=16, seed=3, checkpoint=path, every=every)
    with TrainingSession(train_op()) as whole:
        train(whole, DATA, Plan(epochs=4, batch=16, seed=3))
        expected = whole.state_dict()
    with TrainingSession(train_op()) as first, pytest.raises(Stop):
        train(first, DATA, plan, callbacks=[Watch(stop)])
    with TrainingSession(train_op()) as second:
        at = resume(second, plan)
        assert at.step == (9 if every else 8)
        end = train(second, DATA, plan, progress=at).at
        assert (end.epoch, end.step) == (4, 16)
        for name, array in second.state_dict().items():
            np.testing.assert_array_equal(array, expected[name])


def test_resuming_with_another_order_of_the_data_is_an_error(tmp_path):
    path = tmp_path / "c.safetensors"
    with TrainingSession(train_op()) as session:
        train(session, DATA, Plan(epochs=1, batch=16, checkpoint=path))
        with pytest.raises(CheckpointError, match="another batch; found 16; expected 8"):
            resume(session, Plan(epochs=2, batch=8, checkpoint=path))
        with pytest.raises(OptionError, match="nothing to resume from"):
            resume(session, Plan(epochs=2, batch=16))


def test_metrics_hold_a_row_per_step_and_evaluation_and_go_on(tmp_path):
    path, saved = tmp_path / "m.csv", tmp_path / "c"
    with TrainingSession(train_op()) as session:
        plan = Plan(1, 16, checkpoint=saved)
        train(session, DATA, plan, held_out=DATA, callbacks=[CSVLogger(path)])
        with path.open("a") as file:
            file.write("2,5,1.0,9.0,,,\n")  # lost by an interruption
        plan = Plan(2, 16, checkpoint=saved)
        at = resume(session, plan)
        train(session, DATA, plan, held_out=DATA, callbacks=[CSVLogger(path)], progress=at)
        expected = evaluate(session, DATA, 50)["eval_loss"]
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [int(r["step"]) for r in rows] == [1, 2, 3, 4, 4, 5, 6, 7, 8, 8]
    assert [int(r["epoch"]) for r in rows] == [1] * 5 + [2] * 5
    assert float(rows[-1]["eval_loss"]) == pytest.approx(expected, rel=1e-5)
    assert not rows[-1]["loss"]


def test_metrics_that_cannot_be_written_or_gone_on_with_are_errors(tmp_path):
    with pytest.raises(OptionError, match=r"found \.txt; expected \.csv"):
        CSVLogger(tmp_path / "m.txt")
    path, saved = tmp_path / "m.csv", tmp_path / "c"
    (tmp_path / "m.txt").touch()
    with TrainingSession(train_op()) as session:
        plan = Plan(1, 16, checkpoint=saved)
        with pytest.raises(SaveError, match="cannot be written"):
            train(session, DATA, plan, callbacks=[CSVLogger(tmp_path / "m.txt" / "m.csv")])
        train(session, DATA, plan)
        path.write_text("a\n1\n")
        at, callbacks = resume(session, plan), [CSVLogger(path)]
        with pytest.raises(DataError, match="cannot be read"):
            train(session, DATA, Plan(2, 16), callbacks=callbacks, progress=at)


def test_a_loss_that_is_not_finite_ends_training_before_the_checkpoint_is_replaced(tmp_path):
    path = tmp_path / "c"
    with TrainingSession(train_op()) as session:
        session.learning_rate = 1e30
        with pytest.raises(DivergenceError, match=r"step \d+, batch .*: the loss is not finite"):
            train(session, DATA, Plan(5, 16, checkpoint=path))
    assert not path.exists()


@pytest.mark.parametrize("every", [0, 1])
def test_weights_that_are_nan_are_not_saved_though_the_loss_is_finite(tmp_path, every):
    # The power of 0 is 0, and its gradient is infinite; times 0 it is NaN.
    model = model_of("""<ir_version: 8, opset_import: ["": 17]>
        g (float[n, 2] x) => (float loss) <float[2] w = {0, 0}> {
            y = Mul(x, w)
            z = Mul(y, y)
            p = Constant<value = float {0.4}>()
            r = Pow(z, p)
            loss = ReduceSum<keepdims=0>(r)
        }""")
    data = DataSet({"x": np.ones((4, 2), np.float32)})
    path = tmp_path / "c.safetensors"
    plan = Plan(epochs=1, batch=4, checkpoint=path, every=every)
    op = amp.optimizers.GradientDescent(0.1).minimize(amp.value(model, "loss"))
    with (
        TrainingSession(op) as session,
        pytest.raises(DivergenceError, match=r"step 1: a weight has become NaN; found w"),
    ):
        train(session, data, plan)
    assert not path.exists()


CLASSES = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 3] x) => (float[N, 4] y) <float[3, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}> {
        y = MatMul(x, w)
    }"""


def classifier(**options):
    loss = amp.losses.softmax_cross_entropy(amp.load(onnx.parser.parse_model(CLASSES)), "y", "t")
    return TrainingSession(amp.optimizers.Adam().minimize(loss), **options)


@pytest.mark.parametrize("held_out", [False, True])
def test_labels_that_do_not_exist_are_found_before_the_first_step(held_out):
    good = DataSet({"x": np.ones((9, 3), np.float32), "t": np.arange(9) % 4}, "good.npz")
    wrong = DataSet(good.arrays | {"t": np.arange(9) - 1}, "labels.npz")
    steps = []
    text = r"labels.npz node .*: the feed 't' holds a class that does not exist; found -1 at \[0\]"
    data, other = (good, wrong) if held_out else (wrong, None)
    with classifier() as session, pytest.raises(DataError, match=text):
        train(session, data, Plan(1, 4), held_out=other, callbacks=[Watch(steps.append)])
    assert not steps


def test_a_plan_of_numpys_numbers_is_saved(tmp_path):
    path = tmp_path / "c.safetensors"
    numbers: dict[str, Any] = {"batch": np.int64(16), "seed": np.int32(3)}
    plan = Plan(epochs=1, checkpoint=path, **numbers)
    with TrainingSession(train_op()) as session:
        train(session, DATA, plan)
        assert resume(session, plan).epoch == 1
