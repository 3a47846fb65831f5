"""The examples run as they are, and the README shows them as they are."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from handmade import batch, reference, train_op

from amp_rewrite.cli.main import main
from amp_rewrite.graph.io.save import save
from amp_rewrite.training.session.checkpoint import read_checkpoint
from amp_rewrite.training.step.build_step import build_step

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def run(name, *arguments):
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout


def losses_of(output):
    return [float(line) for line in output.splitlines()]


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Return the folder with what examples/digits.py writes."""
    pytest.importorskip("sklearn")
    folder, before = tmp_path_factory.mktemp("digits"), Path.cwd()
    os.chdir(folder)
    try:
        run("digits.py")
    finally:
        os.chdir(before)
    return folder


def accuracy(folder):
    session: Any = onnxruntime.InferenceSession(
        folder / "trained.onnx", providers=["CPUExecutionProvider"]
    )
    test = np.load(folder / "digits_test.npz")
    return (session.run(["logits"], {"x": test["x"]})[0].argmax(1) == test["t"]).mean()


def test_a_plain_runtime_trains_with_a_step_file(tmp_path):
    save(build_step(train_op()), tmp_path / "step.onnx")
    np.savez(tmp_path / "data.npz", **batch(0))
    losses = losses_of(run("plain_runtime.py", tmp_path / "step.onnx", tmp_path / "data.npz", 5))
    assert len(losses) == 5
    np.testing.assert_allclose(losses[0], reference(1)[0][0], rtol=1e-5)
    assert losses[1] < losses[0]


@pytest.mark.slow
def test_the_ten_line_example_trains_and_exports(digits):
    arguments = [digits / name for name in ("digits.onnx", "digits_train.npz", "trained.onnx")]
    losses = losses_of(run("train.py", *arguments))
    assert losses[-1] < losses[0] / 5
    assert accuracy(digits) > 0.9


@pytest.mark.slow
def test_the_example_in_mixed_precision_trains_saves_and_exports(digits, monkeypatch):
    monkeypatch.chdir(digits)
    losses = losses_of(run("mixed_precision.py", "digits.onnx", "digits_train.npz", "trained.onnx"))
    assert losses[-1] < losses[0] / 5
    assert accuracy(digits) > 0.9
    saved = read_checkpoint("checkpoint.safetensors").tensors
    assert saved["loss_scale/good_steps"] == saved["global_step"] > 0
    assert saved["conv1"].dtype == np.float32


@pytest.mark.slow
def test_the_commands_of_the_documentation_train_digits(digits, monkeypatch, capsys):
    monkeypatch.chdir(digits)
    text = (ROOT / "docs" / "training.md").read_text("utf-8")
    start = text.index("python examples/digits.py\n")
    lines = text[start : text.index("```", start)].splitlines()[1:]
    for line in lines:
        program, *arguments = line.split()
        assert program == "amp-rewrite"
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 0
    assert "10 epochs, 230 steps" in capsys.readouterr().out
    assert accuracy(digits) >= 0.98
    losses = losses_of(run("plain_runtime.py", "step.onnx", "digits_train.npz", 2))
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("name", "lines"), [("train.py", 10), ("mixed_precision.py", 12), ("plain_runtime.py", 15)]
)
def test_the_documentation_shows_an_example_as_it_is(name, lines):
    body = (EXAMPLES / name).read_text("utf-8").split('"""\n\n', 1)[1]
    assert f"```python\n{body}```" in (ROOT / "docs" / "training.md").read_text("utf-8")
    code = [line for line in body.splitlines() if line.strip()]
    assert len(code) <= lines
