"""What a session takes of memory, in multiples of its weights, in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
import train_models
from onnx import TensorProto

WIDTH, LAYERS = 1024, 16
WEIGHTS = LAYERS * WIDTH * WIDTH * 4
"""Bytes: products of 4 MiB."""

MEASURE = """
import json, sys
from pathlib import Path
import numpy as np
import amp_rewrite as amp
from resources import memory, peak_memory

def session(path):
    loss = amp.value(amp.load(path), "loss")
    return amp.TrainingSession(amp.optimizers.Adam(1e-3).minimize(loss), [sys.argv[3]], threads=1)

def run(session, width):
    session.run({"x": np.ones((2, width), np.float32), "t": np.zeros(2, np.int64)})

def peak(since):
    found = peak_memory() - since
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    return found

small = session(sys.argv[1])  # what is imported, and threads
run(small, 4)
small.close()
before = memory()
peak(before)
large = session(sys.argv[2])
found = [peak(before)]
for _ in range(4):
    run(large, int(sys.argv[4]))
print(json.dumps([*found, memory() - before]))
"""


def dense(path: Path, width: int) -> str:
    net = train_models.Net(0)
    x = net.input("x", TensorProto.FLOAT, "N", width)
    t = net.input("t", TensorProto.INT64, "N")
    for i in range(LAYERS):
        x = net.op("Tanh", net.op("MatMul", x, net.weight(f"w{i}", width, width, scale=0.01)))
    net.loss(net.op("Identity", x, name="logits"), t, width)
    onnx.save(net.model("dense"), path)
    return str(path)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize(
    "engine",
    ["CPUExecutionProvider", pytest.param("openvino", marks=pytest.mark.openvino)],
)
def test_a_session_takes_its_weights_twice_and_its_states_when_it_has_run(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if engine == "openvino":
        request.getfixturevalue("openvino")
    small, large = dense(tmp_path / "small.onnx", 4), dense(tmp_path / "large.onnx", WIDTH)
    code = f"import sys; sys.path[:0] = {sys.path!r}\n{MEASURE}"
    command = [sys.executable, "-c", code, small, large, engine, str(WIDTH)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    built, running = (found / WEIGHTS for found in json.loads(done.stdout))
    assert built <= 2.5, "the model and the states that are not zero"
    # the model, two sets of weights and slots, a gradient of each, and the engine's memory
    assert running <= 9.5
