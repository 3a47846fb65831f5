"""Long runs: nothing grows, and whatever ends them, they go on bit for bit."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import batch, train_op

import amp_rewrite as amp
from amp_rewrite.errors import SaveError
from amp_rewrite.training.session.checkpoint import read_checkpoint

SUPPORT = Path(__file__).parent.parent / "support"
BENCHMARKS = SUPPORT.parents[1] / "benchmarks"
LONG = pytest.mark.slow
MEBIBYTE = 1 << 20

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="what a process holds is read from Linux's /proc"
)


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        pytest.param("steps", 300, marks=pytest.mark.slow),
        pytest.param("steps", 5000, marks=LONG),
        pytest.param("sessions", 15, marks=pytest.mark.slow),
        pytest.param("sessions", 200, marks=LONG),
    ],
)
def test_nothing_grows(kind: str, count: int) -> None:
    """Threads and files are as many as after the first fifth; memory is, but for the allocator."""
    command = [sys.executable, "-P", str(SUPPORT / "long_runs.py"), kind, str(count)]
    environment = {"PYTHONPATH": f"{SUPPORT}{os.pathsep}{BENCHMARKS}", "PATH": ""}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    before, after = json.loads(done.stdout)
    assert after["threads"] == before["threads"]
    assert after["files"] == before["files"]
    assert after["memory"] - before["memory"] < 8 * MEBIBYTE


@pytest.mark.parametrize("steps", [60, pytest.param(2000, marks=LONG)])
def test_two_sessions_in_two_threads_are_two_sessions(steps: int) -> None:
    """Each ends with the weights that it has alone, bit for bit."""

    def trained(seed: int) -> dict[str, Any]:
        with amp.TrainingSession(train_op(), threads=1) as session:
            session.learning_rate = 1e-3
            for index in range(steps):
                session.run(batch(seed + index % 5))
            return session.state_dict()

    alone = [trained(seed) for seed in (0, 100)]
    together: dict[int, dict[str, Any]] = {}

    def run(index: int) -> None:
        together[index] = trained(100 * index)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, expected in enumerate(alone):
        for name, array in expected.items():
            np.testing.assert_array_equal(together[index][name], array)


@pytest.mark.parametrize(
    ("kills", "epochs"),
    [pytest.param(3, 10, marks=pytest.mark.slow), pytest.param(50, 400, marks=LONG)],
)
def test_a_run_that_is_killed_goes_on_to_the_same_end(
    tmp_path: Path, kills: int, epochs: int
) -> None:
    """SIGKILL at random moments, of which most are in the middle of saving."""
    amp.save(amp.build_step(train_op()), tmp_path / "step.onnx")
    np.savez(tmp_path / "data.npz", **batch(0, 40))
    moments = random.Random(7)
    words = ["--data", "data.npz", "--batch", "4", "--learning-rate", "1e-4", "--seed", "3"]
    train = [sys.executable, "-m", "amp_rewrite", "train", "step.onnx", *words]
    saving = [*train, "--checkpoint", "c.safetensors", "--checkpoint-every", "1", "--quiet"]
    endless = [*saving, "--epochs", "1000000", "--metrics", "m.csv"]
    for kill in range(kills):
        resumed = ["--resume"] if (tmp_path / "c.safetensors").exists() else []
        running = subprocess.Popen([*endless, *resumed], cwd=tmp_path)
        wait_for_steps(tmp_path, moments.randrange(1, 12))
        time.sleep(moments.random() * 0.02)
        running.send_signal(signal.SIGKILL)
        assert running.wait(60) == -signal.SIGKILL
        assert kill < 2 or (tmp_path / "c.safetensors").exists()
    reached = read_checkpoint(tmp_path / "c.safetensors").progress
    assert kills <= reached["step"] < epochs * 10
    end = ["--epochs", str(epochs)]
    subprocess.run([*saving, "--resume", *end], cwd=tmp_path, check=True)
    whole = [*train, "--checkpoint", "w.safetensors", *end, "--quiet"]
    subprocess.run(whole, cwd=tmp_path, check=True)
    expected = read_checkpoint(tmp_path / "w.safetensors")
    found = read_checkpoint(tmp_path / "c.safetensors")
    assert found.progress == expected.progress
    for name, array in expected.tensors.items():
        np.testing.assert_array_equal(found.tensors[name], array)


def wait_for_steps(folder: Path, count: int) -> None:
    """Wait until the log has grown by so many rows."""
    log, end = folder / "m.csv", time.monotonic() + 60
    first = len(log.read_bytes().splitlines()) if log.exists() else 0
    while not log.exists() or len(log.read_bytes().splitlines()) < first + count:
        assert time.monotonic() < end, "no step was done"
        time.sleep(0.005)
        if log.exists():
            first = min(first, len(log.read_bytes().splitlines()))  # what was lost is cut off


def test_a_full_disk_keeps_the_old_checkpoint(tmp_path: Path) -> None:
    """A limit on the length of files stands for the end of the disk: writing fails half way."""
    path = tmp_path / "c.safetensors"
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with amp.TrainingSession(train_op()) as session:
        session.run(batch(0))
        session.save(path)
        content, files = path.read_bytes(), sorted(tmp_path.iterdir())
        expected = session.state_dict()
        session.run(batch(1))
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(content) // 2, limits[1]))
            with pytest.raises(SaveError, match=r"c\.safetensors"):
                session.save(path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, before)
        assert path.read_bytes() == content
        assert sorted(tmp_path.iterdir()) == files
        session.restore(path)
        for name, array in session.state_dict().items():
            np.testing.assert_array_equal(array, expected[name])
