"""What a user may pass by mistake is an error of one line, and changes nothing."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from handmade import batch, train_op

from amp_rewrite.errors import (
    AmpError,
    CheckpointError,
    FeedError,
    FetchError,
    OptionError,
    SaveError,
)
from amp_rewrite.training.session.training_session import TrainingSession
from amp_rewrite.training.step.build_step import build_step

CPU = "CPUExecutionProvider"
ITSELF: dict[str, object] = {}
ITSELF["again"] = ITSELF


@pytest.fixture
def session():
    with TrainingSession(train_op()) as opened:
        opened.run(batch(0))
        yield opened


def refused(kind: type[AmpError], message: str, call, *args, **kwargs) -> None:
    with pytest.raises(kind, match=message) as caught:
        call(*args, **kwargs)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"providers": None}, "must be a list of execution providers; found None"),
        ({"providers": 3}, "must be a list of execution providers; found 3"),
        ({"providers": {CPU}}, "must be a list of execution providers"),
        ({"providers": [None]}, "a name, or a tuple of a name and options; found None; pass"),
        ({"providers": [(CPU, 3)]}, r"found \('CPUExecutionProvider', 3\)"),
        ({"providers": [(CPU,)]}, "a name, or a tuple of a name and options"),
        ({"providers": [(CPU, {}, 3)]}, "a name, or a tuple of a name and options"),
        ({"providers": [[CPU, {}]]}, "a name, or a tuple of a name and options"),
        ({"providers": [(CPU, {"device_id": "x"})]}, "impossible device_id; found 'x'"),
        ({"providers": [(CPU, {"device_id": -1})]}, "impossible device_id; found -1"),
        ({"threads": "two"}, "impossible number of threads; found 'two'; expected an integer"),
        ({"threads": -1}, "impossible number of threads; found -1"),
        ({"threads": 1.5}, "impossible number of threads; found 1.5"),
        ({"threads": 2**31}, "impossible number of threads; found 2147483648"),
        ({"seed": "x"}, "the seed must be an integer; found 'x'"),
        ({"seed": None}, "the seed must be an integer; found None"),
        ({"options": 3}, "not the options of a session; found an object of type int"),
        ({"shards": 3}, "not the shards of a session; found an object of type int"),
        ({"precision": ["float16"]}, r"unknown precision; found \['float16'\]"),
    ],
)
def test_a_session_refuses_options_of_another_kind(given, message):
    refused(OptionError, message, TrainingSession, train_op(), **given)


def test_numbers_of_numpy_are_options_too():
    providers = [(CPU, {"device_id": "0"})]
    numbers: dict[str, Any] = {"threads": np.int64(1), "seed": np.int32(3)}
    with TrainingSession(train_op(), providers, options=None, **numbers) as session:
        assert session.run(batch(0))["loss"] > 0


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({"seed": 1.5}, OptionError, "the seed must be an integer; found 1.5"),
        ({"seed": True}, OptionError, "the seed must be an integer; found True"),
        ({"fetches": [None]}, FetchError, "must be names; found an object of type NoneType"),
        ({"fetches": None}, FetchError, "must be names; found an object of type NoneType"),
        ({"fetches": 3}, FetchError, "must be names; found an object of type int"),
        ({"targets": 3}, OptionError, "must be a mapping to names of values; found 3"),
        (
            {"targets": ["y"]},
            OptionError,
            "expected the keys 'logits', 'predictions', 'labels', and",
        ),
        ({"targets": {"answers": "y"}}, OptionError, "expected the keys 'logits', 'predictions'"),
        ({"targets": {"ignore_index": "y"}}, OptionError, "'ignore_index' with a number"),
        ({"targets": {"logits": 3}}, OptionError, r"found \{'logits': 3\}"),
    ],
)
def test_a_step_is_not_built_from_options_of_another_kind(given, kind, message):
    refused(kind, message, build_step, train_op(), **given)


@pytest.mark.parametrize("run", ["run", "evaluate"])
@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((None,), FeedError, "feeds must be a mapping from input names to arrays"),
        (({**batch(0), "x": None},), FeedError, "wrong element type; found object"),
        (({**batch(0), 3: 1.0},), FeedError, "the step has no input 3"),
        ((batch(0), 3), FetchError, "fetches must be names; found an object of type int"),
        ((batch(0), [None]), FetchError, "fetches must be names; found an object of type NoneType"),
    ],
)
def test_a_run_refuses_what_is_neither_feeds_nor_fetches(session, run, arguments, kind, message):
    refused(kind, message, getattr(session, run), *arguments)
    assert session.global_step == 1


def with_w(value):
    return lambda state: {**state, "w": value}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: None, "a mapping from their names to arrays; found an object of type NoneType"),
        (lambda state: list(state.items()), "found an object of type list"),
        (lambda state: {**state, 3: np.zeros(1)}, "a mapping from their names to arrays"),
        (
            with_w(None),
            r"'w' is not an array; found an object of type NoneType; .* float32 \[4, 2\]",
        ),
        (with_w([[0.0, 0.0]] * 4), "'w' is not an array; found an object of type list"),
        (
            with_w(onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((4, 2), "f"))),
            "'w' is not an array; found an object of type OrtValue",
        ),
        (with_w(np.full((4, 2), None)), r"'w' differs; found object \[4, 2\]; expected float32"),
        (with_w(np.zeros((4, 2), complex)), r"'w' differs; found complex128 \[4, 2\]"),
        (with_w(np.zeros((2, 4), "f")), r"'w' differs; found float32 \[2, 4\]"),
    ],
)
def test_a_state_dict_of_something_else_is_refused(session, change, message):
    before = session.state_dict()
    refused(CheckpointError, message, session.load_state_dict, change(before))
    for name, array in session.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "w: a state cannot take what is not a tensor of numbers; found object"),
        ("abc", "not a tensor of numbers; found <U3"),
        ([[1.0], [2.0, 3.0]], "not a tensor of numbers; found setting an array element"),
        (np.zeros((4, 2), complex), r"found complex128 \[4, 2\]; expected float32 \[4, 2\]"),
        (10**400, "not a tensor of numbers; found object"),
    ],
)
def test_a_state_takes_numbers_only(session, value, message):
    before = session.read_state("w")
    refused(OptionError, message, session.assign_state, "w", value)
    np.testing.assert_array_equal(session.read_state("w"), before)


@pytest.mark.parametrize("name", [3, None, ["w"]])
def test_a_state_has_a_name(session, name):
    refused(OptionError, "the step has no such state", session.read_state, name)


@pytest.mark.parametrize(
    ("progress", "message"),
    [
        ({"epoch": object()}, "JSON cannot hold the progress; found Object of type object"),
        ({"epoch": np.float32(3)}, r"JSON cannot hold .* convert arrays and numbers of numpy"),
        ({(1, 2): 3}, "JSON cannot hold the progress; found keys must be str"),
        (ITSELF, "JSON cannot hold the progress; found Circular reference"),
        (3, "the progress must be a mapping; found an object of type int"),
        ([], "the progress must be a mapping; found an object of type list"),
    ],
)
def test_progress_that_json_cannot_hold_leaves_the_old_checkpoint(
    tmp_path, session, progress, message
):
    path = tmp_path / "c.safetensors"
    session.save(path, {"epoch": 1})
    session.run(batch(1))
    refused(SaveError, message, session.save, path, progress)
    assert session.restore(path) == {"epoch": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.safetensors"]


@pytest.mark.parametrize("path", [3.5, 3, b"c.safetensors"])
@pytest.mark.parametrize(
    ("method", "kind"),
    [("save", SaveError), ("export", SaveError), ("restore", CheckpointError)],
)
def test_a_path_is_a_string_or_a_path_object(session, method, kind, path):
    message = f"must be a string or a path object; found an object of type {type(path).__name__}"
    refused(kind, message, getattr(session, method), path)


@pytest.mark.parametrize(
    ("method", "kind"),
    [("save", SaveError), ("export", SaveError), ("restore", CheckpointError)],
)
def test_a_path_holds_no_null_character(tmp_path, session, method, kind):
    refused(kind, "cannot hold a null character", getattr(session, method), f"{tmp_path}/a\0b")
