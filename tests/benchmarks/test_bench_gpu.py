"""The GPU benchmark's dry run, which is the same program on another provider."""

import ctypes
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cuda_device import CudaDevice, cuda_device

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / "bench.py"), "gpu", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_dry_run_measures_every_variant_and_writes_one_file(tmp_path: Path):
    output = tmp_path / "gpu.json"
    precisions = ["float32", "tf32", "float16"]
    done = run(
        "--provider", "CPUExecutionProvider", "--networks", "mlp", "--models", "--torch",
        "--precisions", *precisions, "--json", str(output),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(output.read_text())
    assert [(c["precision"], c["variant"], c["error"]) for c in found["measured"]] == [
        ("float32", "plain", ""),
        ("float16", "if", ""),
        ("float16", "select", ""),
    ]
    for case in found["measured"]:
        assert case["figures"]["ms"] > 0
        assert case["figures"]["batch"] == 64
        assert case["figures"]["peak_mib"] > 10
    assert found["measured"][1]["figures"]["casts"] > 0
    assert found["provider"] == "CPUExecutionProvider"
    assert found["device"] is None
    assert {"onnxruntime", "torch", "numpy"} <= found["versions"].keys()
    assert "training mlp amp_rewrite float16 select" in done.stdout


def test_what_fails_is_in_the_file_with_its_reason(tmp_path: Path):
    output = tmp_path / "gpu.json"
    done = run(
        "--provider", "CPUExecutionProvider", "--networks", "--models", "no_such_model",
        "--precisions", "float32", "--json", str(output),
    )  # fmt: skip
    assert done.returncode == 1
    (case,) = json.loads(output.read_text())["measured"]
    assert "no_such_model" in case["error"]


def test_without_a_gpu_the_real_run_says_what_to_do(tmp_path: Path):
    if cuda_device() is not None:
        pytest.skip("there is a GPU")
    done = run("--json", str(tmp_path / "gpu.json"))
    assert done.returncode == 1
    assert "no CUDA device: use --provider CPUExecutionProvider for a dry run" in done.stderr


def fake_driver(major: int, minor: int, status: int = 0) -> SimpleNamespace:
    """Return a CUDA driver with one device of a given capability."""

    def put(place: Any, value: int, failed: int = 0) -> int:
        place._obj.value = value
        return failed

    def name_to(name: Any, size: int, device: ctypes.c_int) -> int:
        name.value = b"Fake 100"
        return int(size < 9 or device.value)

    values = {75: major, 76: minor}
    return SimpleNamespace(
        cuInit=lambda flags: status + flags,
        cuDeviceGet=lambda device, index: put(device, index, int(index > 0)),
        cuDriverGetVersion=lambda version: put(version, 12040),
        cuDeviceGetName=name_to,
        cuDeviceTotalMem_v2=lambda memory, device: put(memory, 2**34, device.value),
        cuDeviceGetAttribute=lambda place, which, device: put(place, values[which], device.value),
    )


def test_the_driver_tells_name_capability_memory_and_version():
    assert cuda_device(0, fake_driver(8, 6)) == CudaDevice("Fake 100", 8.6, 2**34, "12.4")
    assert cuda_device(1, fake_driver(8, 6)) is None
    assert cuda_device(0, fake_driver(8, 6, status=100)) is None
