"""The session on a step written by hand: state, feeds, fetches, errors."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from handmade import FORWARD, batch, model_of, reference, train_op, weights

import amp_rewrite as amp
from amp_rewrite.errors import FeedError, FetchError, OptionError, RunError, StepError
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.save import save
from amp_rewrite.training.session.training_session import TrainingSession
from amp_rewrite.training.step.build_step import build_step


@pytest.fixture
def session():
    with TrainingSession(train_op()) as opened:
        yield opened


def test_steps_give_the_losses_and_the_state_that_numpy_computes(session):
    losses = [float(session.run(batch(i))["loss"]) for i in range(5)]
    expected, state = reference(5)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    found = session.state_dict()
    np.testing.assert_allclose(found["w"], state["w"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["w/Momentum"], state["momentum"], rtol=1e-4, atol=1e-6)
    assert found["global_step"] == session.global_step == 5


def test_any_value_of_the_step_can_be_fetched_and_fetching_changes_no_result(session):
    out = session.run(batch(0), ["gw", "loss", "y", "w"])
    assert list(out) == ["gw", "loss", "y", "w"]
    np.testing.assert_array_equal(out["w"], weights()["w"])  # before the update
    with TrainingSession(train_op()) as other:
        other.run(batch(0))
        second = session.run(batch(1), "loss")["loss"]
        assert second == other.run(batch(1))["loss"]


def test_a_class_of_a_user_has_attributes_of_its_own():
    class Best(TrainingSession):
        def __init__(self, step: Any) -> None:
            super().__init__(step)
            self.best = 1.0

    with Best(train_op()) as session:
        session.best = 0.5
        assert session.best == 0.5


@pytest.mark.parametrize("run", ["run", "evaluate"])
def test_batches_may_have_different_sizes(session, run):
    for size in (8, 3, 5):
        assert getattr(session, run)(batch(0, size), ["y"])["y"].shape == (size, 2)


def test_evaluate_changes_no_state(session):
    before = session.state_dict()
    first = session.evaluate(batch(0))["loss"]
    np.testing.assert_allclose(first, reference(1)[0][0], rtol=1e-5)
    for name, array in session.state_dict().items():
        np.testing.assert_array_equal(array, before[name])
    session.run(batch(0))
    assert session.evaluate(batch(0))["loss"] < first


def test_the_learning_rate_can_be_set_between_steps(session):
    assert session.learning_rate == 0.5
    session.run(batch(0))
    session.learning_rate = 0.0
    before = session.state_dict()["w"]
    session.run(batch(1))
    np.testing.assert_array_equal(session.state_dict()["w"], before)
    assert session.learning_rate == 0.0


@pytest.mark.parametrize("value", [float("nan"), True, 10**400, float("inf"), -1.0, "fast"])
def test_a_learning_rate_that_is_not_finite_is_refused(session, value):
    with pytest.raises(OptionError, match="impossible learning_rate"):
        session.learning_rate = value


def test_states_of_the_graph_are_read_and_assigned_in_the_running_session():
    op = amp.optimizers.GradientDescent(1e-3).minimize(amp.value(model_of(FORWARD), "loss"))
    with TrainingSession(op) as session:
        session.run(batch(0))
        w = op.graph.states["w"]
        np.testing.assert_array_equal(w.read(), session.state_dict()["w"])
        w.assign(np.zeros(w.shape))
        assert not session.state_dict()["w"].any()
        with pytest.raises(OptionError, match="value of another shape"):
            session.assign_state("w", np.zeros(3))
        with pytest.raises(OptionError, match="no such state; found 'v'"):
            session.read_state("v")
    with pytest.raises(RunError, match="w: the session that held the state is closed"):
        w.read()
    w.assign(np.ones(w.shape))
    np.testing.assert_array_equal(w.read(), np.ones(w.shape))


def test_frozen_weights_are_kept_in_a_step_file(tmp_path):
    save(model_of(FORWARD), tmp_path / "forward.onnx")
    model = load(tmp_path / "forward.onnx")
    path = tmp_path / "moved" / "step.onnx"
    path.parent.mkdir()
    optimizer = amp.optimizers.GradientDescent(1e-3)
    op = optimizer.minimize(amp.value(model, "loss"), var_list=["w"])
    save(build_step(op), path)
    (tmp_path / "forward.onnx").unlink()
    with TrainingSession(path) as session:
        session.run(batch(0))
        exported = session.export().graph.initializers
    assert exported["w"].shape.numpy() == (4, 2)
    np.testing.assert_array_equal(exported["b"].const_value.numpy(), weights()["b"])
    assert (exported["w"].const_value.numpy() != weights()["w"]).any()


class Capsule:
    """A tensor of another library: DLPack and nothing else."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **arguments):
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


@pytest.mark.parametrize("wrap", [Capsule, onnxruntime.OrtValue.ortvalue_from_numpy])
def test_feeds_may_be_ort_values_or_dlpack_tensors(session, wrap):
    for i in range(3):
        out = session.run({name: wrap(array) for name, array in batch(i).items()})
        np.testing.assert_allclose(out["loss"], reference(3)[0][i], rtol=1e-5)


class Attached:
    """A tensor that does not hand itself over, as one of PyTorch that requires a gradient."""

    def __dlpack__(self, **arguments):
        raise BufferError("use detach()")

    def __dlpack_device__(self):
        return 1, 0


def test_a_tensor_that_does_not_hand_itself_over_is_an_error(session):
    with pytest.raises(FeedError, match=r"'x' cannot be handed over .* found use detach\(\)"):
        session.run(batch(0) | {"x": Attached()})


def test_numbers_in_lists_take_the_type_of_the_input(session):
    feeds = {"x": [[1, 2, 3, 4]], "t": [[0.5, 1.5]]}
    arrays = {name: np.array(rows, np.float32) for name, rows in feeds.items()}
    assert session.evaluate(feeds)["loss"] == session.evaluate(arrays)["loss"]


def changed(**changes):
    feeds = {**batch(0), **changes}
    return {name: array for name, array in feeds.items() if array is not None}


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        (changed(t=None), r"the input 't' is not fed; found x; expected float32 \[N, 2\]"),
        (changed(u=np.zeros(1)), "no input 'u'; expected x, t"),
        (changed(x=np.zeros((8, 4), "?")), r"'x' has the wrong element type; found bool"),
        (changed(x=np.zeros((8, 5), "f")), r"wrong shape; found \[8, 5\]; .* \[N, 4\]"),
        (changed(x=np.zeros(4, "f")), "wrong shape"),
        (changed(x=np.zeros((7, 4), "f")), "'x' and 't' disagree about the dimension 'N'"),
        (changed(x=[[1.0, 2.0], [3.0]]), "'x' is not a tensor"),
        (changed(x=["a", "b"]), "'x' has the wrong element type"),
        ([1, 2], "feeds must be a mapping"),
    ],
)
def test_wrong_feeds_are_errors_in_one_line_that_change_nothing(session, feeds, message):
    before = session.state_dict()
    with pytest.raises(FeedError, match=message) as caught:
        session.run(feeds)
    assert "\n" not in str(caught.value)
    np.testing.assert_array_equal(before["w"], session.state_dict()["w"])


def test_an_unknown_fetch_names_close_ones(session):
    with pytest.raises(FetchError, match=r"no value .los.; .*did you mean .loss."):
        session.run(batch(0), ["los"])


@pytest.mark.parametrize("fetches", [3, ["loss", 3]])
def test_fetches_that_are_no_names_are_errors(session, fetches):
    with pytest.raises(FetchError, match="fetches must be names; found an object of type int"):
        session.run(batch(0), fetches)


def test_an_evaluation_has_no_gradients():
    # Those of BatchNormalization, say, would be the formula of training on values of inference.
    op = amp.optimizers.GradientDescent(0.5).minimize(amp.value(model_of(FORWARD), "loss"))
    message = r"gradient_norm: a gradient is not a value of the forward pass; fetch it in a step"
    with TrainingSession(op) as session:
        with pytest.raises(FetchError, match=message):
            session.evaluate(batch(0), ["loss", "gradient_norm"])
        assert session.evaluate(batch(0), ["learning_rate"])["learning_rate"] == 0.5
        assert session.run(batch(0), ["gradient_norm"])["gradient_norm"] > 0


def test_an_evaluation_of_nothing_is_an_error_and_a_step_of_it_is_none(session):
    with pytest.raises(FetchError, match=r"nothing is asked for; found \[\]; pass the name"):
        session.evaluate(batch(0), [])
    assert session.run(batch(0), []) == {}
    assert session.global_step == 1


@pytest.mark.parametrize("source", [3, model_of(FORWARD)])
def test_what_is_no_train_op_is_an_error(source):
    with pytest.raises(StepError, match=r"not a training step; found an object.*TrainOp.*minimize"):
        build_step(source)
    with pytest.raises(StepError, match="not a training step"):
        TrainingSession(source)


def test_a_provider_that_is_not_there_is_an_error():
    with pytest.raises(OptionError, match="no such execution provider; found 'Nope'"):
        TrainingSession(train_op(), providers=["Nope"])


def test_a_closed_session_says_so(session):
    session.close()
    with pytest.raises(RunError, match="the session is closed"):
        session.run(batch(0))


def test_a_step_file_trains_like_the_train_op_it_was_built_from(tmp_path):
    path = tmp_path / "step.onnx"
    save(build_step(train_op()), path)
    with TrainingSession(path) as session:
        losses = [float(session.run(batch(i))["loss"]) for i in range(5)]
        exported = session.export()
    np.testing.assert_allclose(losses, reference(5)[0], rtol=1e-5)
    assert [node.op_type for node in exported.graph][-1] == "ReduceMean"
    np.testing.assert_allclose(
        exported.graph.initializers["w"].const_value.numpy(), reference(5)[1]["w"], rtol=1e-4
    )


def test_a_model_that_is_no_step_is_an_error(tmp_path):
    path = tmp_path / "forward.onnx"
    save(train_op().graph.forward(), path)
    with pytest.raises(StepError, match=r"forward\.onnx: not a training step"):
        TrainingSession(path)


def test_a_step_holds_only_what_the_loss_and_the_updates_need():
    model = build_step(train_op())
    assert [v.name for v in model.graph.inputs] == [
        "x", "t", "w", "b", "w/Momentum", "global_step", "learning_rate",
    ]  # fmt: skip
    assert [v.name for v in model.graph.outputs] == [
        "loss", "w:next", "b:next", "w/Momentum:next", "global_step:next", "learning_rate:next",
    ]  # fmt: skip
    more = build_step(train_op(), ["y"])
    assert [v.name for v in more.graph.outputs][:2] == ["loss", "y"]


def test_export_keeps_the_structure_and_everything_else(tmp_path, session):
    path = tmp_path / "trained.onnx"
    session.run(batch(0))
    session.export(path)
    found = load(path)
    assert [n.op_type for n in found.graph] == ["MatMul", "Add", "Sub", "Mul", "ReduceMean"]
    assert sorted(found.graph.initializers) == ["b", "w"]
    run: Any = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run
    np.testing.assert_allclose(
        run(None, batch(1))[0], session.evaluate(batch(1))["loss"], rtol=1e-6
    )
