"""The GPU benchmark's dry run, which is the same program on another provider."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
    from amp_rewrite.runtimes.ort.device import cuda_device

    if cuda_device() is not None:
        pytest.skip("there is a GPU")
    done = run("--json", str(tmp_path / "gpu.json"))
    assert done.returncode == 1
    assert "no CUDA device: use --provider CPUExecutionProvider for a dry run" in done.stderr
