"""Models on an Arm processor; this machine's own Python stands in for the emulated one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import arm_processor
import numpy as np
import onnx.parser
import pytest

from amp_rewrite.errors import OptionError, RunError

HEADER = '<ir_version: 9, opset_import: ["" : 17]>'
TWO = (
    f"{HEADER} g (float[N] x, float[1] z) => (float[K] y, float[N] n) <float[1] z = {{2}}>"
    "{ y = Add(x, z) n = Neg(x) }"
)
X = np.arange(4, dtype=np.float32)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name a folder like those of make_arm64.py, whose program is this Python."""
    program = tmp_path / "run"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv(arm_processor.FOLDER, str(tmp_path))
    monkeypatch.setattr(arm_processor, "is_arm", lambda: False)


def loaded(text: str) -> Any:
    return arm_processor.ArmEvaluator(onnx.parser.parse_model(text))


@pytest.mark.usefixtures("stand_in")
def test_a_model_in_another_process_computes_what_any_other_does() -> None:
    found = loaded(TWO).run({"x": X})
    np.testing.assert_array_equal(found["y"], X + 2)
    np.testing.assert_array_equal(found["n"], -X)
    text = f"{HEADER} g (float16[2] x) => (float16[2] y) {{ y = Mul(x, x) }}"
    assert loaded(text).run({"x": np.ones(2, np.float16)})["y"].dtype == np.float16


@pytest.mark.usefixtures("stand_in")
def test_texts_and_sequences_go_there_and_back() -> None:
    model = loaded(
        f"{HEADER} g (string[N] s, float[] x) => (string[N] t, seq(float[]) q)"
        "{ t = Identity(s) q = SequenceConstruct(x, x) }"
    )
    found = model.run({"s": np.array(["a", "ä"], object), "x": np.float32(3).reshape(())})
    assert found["t"].tolist() == ["a", "ä"]
    assert [(item.shape, float(item)) for item in found["q"]] == [((), 3.0), ((), 3.0)]


@pytest.mark.usefixtures("stand_in")
def test_a_model_that_does_not_load_is_an_error_and_the_next_one_loads() -> None:
    with pytest.raises(RunError, match=r"on Arm cannot load the model; found .*(shape|dim)"):
        loaded(f"{HEADER} g (float[2,3] x) => (float[2,2] y) {{ y = MatMul(x, x) }}")
    assert loaded(TWO).outputs == ("y", "n")


@pytest.mark.usefixtures("stand_in")
def test_a_process_that_has_ended_is_an_error_and_a_new_one_starts() -> None:
    model = loaded(TWO)
    arm_processor.machine()._process.kill()
    with pytest.raises(RunError, match="its process ended with status -9"):
        model.run({"x": X})
    assert loaded(TWO).run({"x": X})["n"].tolist() == (-X).tolist()


def test_without_a_processor_the_error_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(arm_processor, "is_arm", lambda: False)
    monkeypatch.delenv(arm_processor.FOLDER, raising=False)
    with pytest.raises(OptionError, match=r"no Arm processor.*AMP_REWRITE_ARM64=FOLDER"):
        arm_processor.check_machine()
    monkeypatch.setenv(arm_processor.FOLDER, str(tmp_path))
    with pytest.raises(OptionError, match="has no program called run"):
        arm_processor.check_machine()


@pytest.mark.arm64
def test_the_processor_computes_float16(arm64: Any) -> None:
    text = f"{HEADER} g (float16[2] x) => (float16[2] y) {{ p = Mul(x, x) y = Div(p, x) }}"
    model = onnx.parser.parse_model(text)
    assert np.isinf(arm64(model).run({"x": np.full(2, 1000, np.float16)})["y"]).all()
