"""Checkpoints: complete, atomic, resumable bit for bit, and refused where they do not belong."""

import json

import ml_dtypes
import numpy as np
import pytest
from handmade import batch, train_op
from safetensors import safe_open
from safetensors.numpy import save_file

from amp_rewrite.errors import CheckpointError, SaveError
from amp_rewrite.graph.metadata_keys import CHECKPOINT_KEY
from amp_rewrite.training.session.checkpoint import read_checkpoint, write_checkpoint
from amp_rewrite.training.session.training_session import TrainingSession


@pytest.fixture
def session():
    with TrainingSession(train_op()) as opened:
        opened.run(batch(0))
        yield opened


def test_a_restored_session_goes_on_bit_for_bit(tmp_path, session):
    path = tmp_path / "c.safetensors"
    session.save(path, {"epoch": 3})
    for i in range(1, 5):
        session.run(batch(i))
    with TrainingSession(train_op()) as other:
        assert other.restore(path) == {"epoch": 3}
        for i in range(1, 5):
            other.run(batch(i))
        for name, array in session.state_dict().items():
            np.testing.assert_array_equal(array, other.state_dict()[name])


def test_a_checkpoint_is_a_safetensors_file_with_every_state_by_name(tmp_path, session):
    path = tmp_path / "c.safetensors"
    session.save(path)
    with safe_open(path, framework="np") as file:
        assert set(file.keys()) == set(session.state_dict())
        note = json.loads(file.metadata()[CHECKPOINT_KEY])
    assert note["roles"]["w/Momentum"] == "slot"
    assert note["version"] == 1


@pytest.mark.parametrize(
    "dtype",
    ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool", "uint64"],
)
def test_every_element_type_survives_a_checkpoint(tmp_path, dtype):
    arrays = {"a": np.arange(6).reshape(2, 3).astype(dtype), "scalar": np.ones((), dtype)}
    write_checkpoint(tmp_path / "c", arrays, {}, {})
    for name, array in read_checkpoint(tmp_path / "c").tensors.items():
        assert array.dtype == arrays[name].dtype
        np.testing.assert_array_equal(array, arrays[name])


def test_bfloat16_survives_a_checkpoint(tmp_path):
    array = np.arange(3).astype(ml_dtypes.bfloat16)
    write_checkpoint(tmp_path / "c", {"a": array}, {}, {})
    found = read_checkpoint(tmp_path / "c").tensors["a"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def rewrite(path, change):
    """Write a checkpoint again after `change` has changed its tensors."""
    checkpoint = read_checkpoint(path)
    tensors = dict(checkpoint.tensors)
    change(tensors)
    write_checkpoint(path, tensors, {}, checkpoint.progress)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("w/Momentum"), "expected 'w/Momentum', which it lacks"),
        (lambda t: t.update(v=np.zeros(1)), "found 'v' that the step does not have"),
        (lambda t: t.update({"b2": t.pop("b")}), r"'b', which it lacks \(it has 'b2'\)"),
        (lambda t: t.update(w=np.zeros((4, 3), "f")), r"'w' differs; found float32 \[4, 3\]"),
        (lambda t: t.update(w=np.zeros((4, 2))), r"'w' differs; found float64 .*expected float32"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused_and_changes_nothing(
    tmp_path, session, change, message
):
    path = tmp_path / "c.safetensors"
    session.save(path)
    rewrite(path, change)
    session.run(batch(1))
    before = session.state_dict()
    with pytest.raises(CheckpointError, match=message):
        session.restore(path)
    for name, array in session.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


def test_what_is_no_checkpoint_is_an_error(tmp_path, session):
    with pytest.raises(CheckpointError, match="cannot be read"):
        session.restore(tmp_path / "missing")
    (tmp_path / "text").write_text("no checkpoint")
    with pytest.raises(CheckpointError, match="cannot be read"):
        session.restore(tmp_path / "text")
    save_file({"w": np.zeros(1)}, tmp_path / "other")
    with pytest.raises(CheckpointError, match="not a checkpoint of this package"):
        session.restore(tmp_path / "other")


def test_a_failed_save_leaves_the_old_checkpoint(tmp_path, session, monkeypatch):
    path = tmp_path / "c.safetensors"
    session.save(path, {"epoch": 1})
    session.run(batch(1))

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(SaveError, match="No space left on device"):
        session.save(path, {"epoch": 2})
    assert read_checkpoint(path).progress == {"epoch": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.safetensors"]


def test_saving_makes_a_missing_folder(tmp_path, session):
    session.save(tmp_path / "new" / "c")
    session.restore(tmp_path / "new" / "c")
    assert session.restored.taken


def test_a_state_dict_sets_a_session_back(session):
    state = session.state_dict()
    first = session.run(batch(1))["loss"]
    session.load_state_dict(state)
    assert session.run(batch(1))["loss"] == first
    with pytest.raises(CheckpointError, match="it lacks"):
        session.load_state_dict({})
