"""`amp-rewrite doctor`: what it prints, writes and returns."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from sick_steps import BATCH, LARGE, joined, scaled, step

import amp_rewrite as amp
from amp_rewrite.cli.command_table import command as command_called
from amp_rewrite.graph.io.save import save

pytestmark = pytest.mark.filterwarnings("ignore::amp_rewrite.errors.AmpWarning")

APP = command_called("doctor")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save(amp.build_step(step()), "step.onnx")
    save(amp.build_step(step(optimizer=scaled(1.0)), precision="float16"), "low.onnx")
    np.savez("data.npz", **joined(BATCH, LARGE))
    np.savez("well.npz", **BATCH)


def command(model: str, data: str, *options: str) -> tuple[int, str]:
    found = CliRunner().invoke(APP, [model, "--data", data, "--batch", "8", *options])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.exit_code, found.stdout


def test_the_first_value_is_printed_and_written() -> None:
    status, text = command("step.onnx", "data.npz", "--no-shuffle", "--report", "r.json")
    assert status == 1
    assert "step 2, batch 2 of epoch 1: loss inf" in text
    assert "which Exp 'act' computes (forward)" in text
    report = json.loads(Path("r.json").read_text("utf-8"))
    assert (report["first"]["node"], report["batch"], report["loss"]) == ("act", 2, "inf")


def test_underflow_is_printed_with_the_scales() -> None:
    status, text = command("low.onnx", "well.npz")
    assert status == 0
    assert "every value is finite" in text
    assert "underflow: first: 100.0% of 16 elements of a gradient are zero" in text
    assert "all layers live at loss scale 262144; none overflows up to" in text
    assert "more layers" in command("low.onnx", "well.npz", "--top", "0")[1]
