"""Sessions on an Arm processor; this machine's own Python stands in for the emulated one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite.errors import OptionError, RunError
from amp_rewrite.numerics.device_run import run_on
from amp_rewrite.runtimes.engines import check_provider, open_session
from amp_rewrite.runtimes.ort.arm64 import arm_session, machine
from amp_rewrite.targets import ARM64

HEADER = '<ir_version: 9, opset_import: ["" : 17]>'
TWO = (
    f"{HEADER} g (float[N] x, float[1] z) => (float[K] y, float[N] n) <float[1] z = {{2}}>"
    "{ y = Add(x, z) n = Neg(x) }"
)
X = np.arange(4, dtype=np.float32)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder like those of make_arm64.py, whose program is this Python."""
    program = tmp_path / "run"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv(machine.FOLDER, str(tmp_path))
    for module in (machine, arm_session):
        monkeypatch.setattr(module, "is_arm", lambda: False)
    return tmp_path


def loaded(text: str) -> Any:
    return amp.load(onnx.parser.parse_model(text))


@pytest.mark.usefixtures("stand_in")
def test_a_session_in_another_process_is_one_as_any_other() -> None:
    opened = open_session(loaded(TWO), providers=[ARM64])
    assert (opened.inputs, opened.overridable, opened.outputs) == (("x",), ("z",), ("y", "n"))
    y, n = opened.run({"x": X})
    np.testing.assert_array_equal(y, X + 2)
    np.testing.assert_array_equal(n, -X)
    (n,) = opened.run({"x": X, "z": X[1:2]}, ["n"])
    np.testing.assert_array_equal(n, -X)
    binding = opened.bind()
    into = np.zeros(4, np.float32)
    binding.read("x", X)
    binding.write("y", into)
    binding.allocate("n")
    binding.run("it fails")
    np.testing.assert_array_equal(into, X + 2)
    assert binding.outputs(["n", "y"])[1] is into
    with pytest.raises(RunError, match="ONNX Runtime on Arm cannot run the model on these inputs"):
        opened.run({"x": X.astype(np.int64)})
    options: Any = object()
    with pytest.raises(OptionError, match="cpu-arm64 does not take the options of a session"):
        open_session(loaded(TWO), providers=[ARM64], options=options)


@pytest.mark.usefixtures("stand_in")
def test_texts_sequences_and_nothing_go_there_and_back() -> None:
    model = loaded(
        f"{HEADER} g (string[N] s, float[] x) => (string[N] t, seq(float[]) q)"
        "{ t = Identity(s) q = SequenceConstruct(x, x) }"
    )
    given = {"s": np.array(["a", "ä"], object), "x": np.float32(3).reshape(())}
    texts, sequence = open_session(model, providers=[ARM64]).run(given)
    assert texts.tolist() == ["a", "ä"]
    assert [(item.shape, float(item)) for item in sequence] == [((), 3.0), ((), 3.0)]


@pytest.mark.usefixtures("stand_in")
def test_a_run_says_that_times_mean_nothing() -> None:
    found = run_on(onnx.parser.parse_model(TWO), {"x": X}, ARM64, repeat=0)
    assert {node.provider for node in found.nodes} == {ARM64}
    assert found.notes == (machine.NO_TIMES,)


@pytest.mark.usefixtures("stand_in")
def test_a_model_that_does_not_load_is_an_error_and_the_next_one_loads() -> None:
    broken = loaded(TWO)
    next(iter(broken.graph)).op_type = "NoSuchOperator"
    with pytest.raises(RunError, match=r"on Arm cannot load the model; found .*NoSuch"):
        open_session(broken, providers=[ARM64])
    assert open_session(loaded(TWO), providers=[ARM64]).outputs == ("y", "n")


@pytest.mark.usefixtures("stand_in")
def test_a_process_that_has_ended_is_an_error_and_a_new_one_starts() -> None:
    opened = open_session(loaded(TWO), providers=[ARM64])
    machine.machine()._process.kill()
    with pytest.raises(RunError, match="its process ended with status -9"):
        opened.run({"x": X})
    assert open_session(loaded(TWO), providers=[ARM64]).run({"x": X}, ["n"])[0].tolist() == (
        (-X).tolist()
    )


def test_without_a_processor_the_error_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "is_arm", lambda: False)
    monkeypatch.delenv(machine.FOLDER, raising=False)
    monkeypatch.setattr("amp_rewrite.runtimes.engines.check_machine", machine.check_machine)
    with pytest.raises(OptionError, match=r"no Arm processor.*AMP_REWRITE_ARM64=FOLDER"):
        check_provider(ARM64)
    monkeypatch.setenv(machine.FOLDER, str(tmp_path))
    with pytest.raises(OptionError, match="has no program called run"):
        check_provider(ARM64)
    program = tmp_path / "run"
    program.write_text("#!/bin/sh\nexit 3\n", "utf-8")
    program.chmod(0o755)
    with pytest.raises(RunError, match=r"does not start on the emulated Arm; found .*status 3"):
        machine.machine()


@pytest.mark.arm64
def test_the_processor_computes_float16(arm64: str) -> None:
    text = f"{HEADER} g (float16[2] x) => (float16[2] y) {{ p = Mul(x, x) y = Div(p, x) }}"
    found = run_on(onnx.parser.parse_model(text), {"x": np.full(2, 1000, np.float16)}, arm64)
    assert np.isinf(found.outputs["y"]).all()
