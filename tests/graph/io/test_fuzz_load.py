"""Whatever is loaded, only AmpError comes out; what loads can be copied and written."""

import logging
import random
import warnings

import mutation_models
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import change_bytes, change_field

from amp_rewrite.errors import AmpError, AmpWarning
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.save import to_proto

SEEDS = [mutation_models.model(name) for name in ("rich", "branches", "function", "loop")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz")
    (path / "weights.data").write_bytes(bytes(16))
    return str(path)


def survives(source: bytes | onnx.ModelProto, folder: str) -> bool:
    """Load; what loads must also copy and write. Anything but AmpError is a failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".* corrected: ", AmpWarning)
        try:
            model = load(source, base_dir=folder)
        except AmpError:
            return False
        again = to_proto(load(model))
    assert again.SerializeToString(deterministic=True) == to_proto(model).SerializeToString(
        deterministic=True
    )
    return True


def check_bytes(seed: int, folder: str) -> None:
    rng = random.Random(seed)
    survives(change_bytes(rng, rng.choice(SEEDS).SerializeToString()), folder)


def check_message(seed: int, folder: str) -> None:
    rng = random.Random(seed)
    model = onnx.ModelProto()
    model.CopyFrom(rng.choice(SEEDS))
    for _ in range(rng.choice((1, 1, 2, 5))):
        change_field(rng, model)
    survives(model, folder)


SEED = st.integers(0, 2**48)
QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}


@pytest.mark.parametrize("index", range(len(SEEDS)))
def test_the_unchanged_models_load(index, folder):
    assert survives(SEEDS[index], folder)


@settings(max_examples=300, **QUIET)
@given(seed=SEED)
def test_changed_bytes_give_nothing_but_amp_errors(seed, folder):
    check_bytes(seed, folder)


@settings(max_examples=300, **QUIET)
@given(seed=SEED)
def test_changed_messages_give_nothing_but_amp_errors(seed, folder):
    check_message(seed, folder)


@pytest.mark.slow
@settings(max_examples=6000, **QUIET)
@given(seed=SEED)
def test_thousands_of_changed_bytes_give_nothing_but_amp_errors(seed, folder):
    check_bytes(seed, folder)


@pytest.mark.slow
@settings(max_examples=6000, **QUIET)
@given(seed=SEED)
def test_thousands_of_changed_messages_give_nothing_but_amp_errors(seed, folder):
    check_message(seed, folder)


def test_broken_models_leave_no_noise_in_the_log(folder, caplog, capfd):
    with caplog.at_level(logging.DEBUG):
        for seed in range(200):
            check_message(seed, folder)
    assert not [record for record in caplog.records if record.name.startswith("onnx")]
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""
