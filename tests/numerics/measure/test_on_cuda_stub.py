"""Measuring on the real CUDA provider, on libraries that compute nothing, with made-up times."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
from cuda_stub import PYTHON, STUB, needs_stub

import amp_rewrite as amp
from amp_rewrite.numerics.measured_conversion import CUT, DEFAULT

pytestmark = needs_stub

SCRIPT = Path(__file__).parents[2] / "support" / "measure_on_stub.py"


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Return what the stub's interpreter printed."""
    folders = [Path(package.__file__ or "").parents[1] for package in (amp, ir)]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(STUB / "lib")}
    done = subprocess.run(
        [PYTHON, SCRIPT, *map(str, folders)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_profile_fills_the_costs_of_fused_groups(found: dict[str, Any]) -> None:
    assert found["nodes"]["h"] == {"float32": 400, "float16": 100}
    assert found["nodes"]["m"] == {"float32": 400, "float16": 500}
    assert found["nodes"]["a"] == {"float32": 0, "float16": 0}  # it is one Gemm with the product
    assert [*found["together"]] == [["h", "a"], ["m", "t"]]
    assert found["casts"] == {"float16": 2, "float32": 2}


def test_the_cut_leaves_out_what_took_longer(found: dict[str, Any]) -> None:
    assert found["low"] == ["a", "h", "k", "y"]


def test_forms_are_ranked_and_the_device_is_named(found: dict[str, Any]) -> None:
    assert found["chosen"] == CUT
    first, *forms, probe = found["lines"]
    assert "computes wrong float16 matrix products" in probe  # the stub computes nothing
    assert first.startswith("measured on CUDAExecutionProvider (onnxruntime ")
    assert [form.strip().partition(":")[0] for form in forms] == [CUT, DEFAULT, "float32"]
    assert "holds, chosen" in forms[0]
    device, driver, _ = found["device"]
    assert device.startswith("stub, compute capability ")
    assert driver.startswith("CUDA ")
    assert found["otherwise"] == []
