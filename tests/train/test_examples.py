"""The examples run as they are."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from handmade import FORWARD, batch, model_of, reference, train_op

from amp_rewrite.graph.save import save
from amp_rewrite.train import build_step

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, *arguments):
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_plain_runtime_trains_with_a_step_file(tmp_path):
    save(build_step(train_op()), tmp_path / "step.onnx")
    np.savez(tmp_path / "data.npz", **batch(0))
    losses = [float(line) for line in run(
        "plain_runtime.py", tmp_path / "step.onnx", tmp_path / "data.npz", 5
    ).splitlines()]  # fmt: skip
    assert len(losses) == 5
    np.testing.assert_allclose(losses[0], reference(1)[0][0], rtol=1e-5)
    assert losses[1] < losses[0]


def test_the_ten_line_example_trains_and_exports(tmp_path):
    save(model_of(FORWARD), tmp_path / "forward.onnx")
    np.savez(tmp_path / "data.npz", **batch(0))
    trained = tmp_path / "trained.onnx"
    output = run("train.py", tmp_path / "forward.onnx", tmp_path / "data.npz", trained)
    losses = [float(line) for line in output.splitlines()]
    assert losses == sorted(losses, reverse=True)
    session = onnxruntime.InferenceSession(trained, providers=["CPUExecutionProvider"])
    assert float(session.run(None, batch(0))[0]) < losses[-1]
