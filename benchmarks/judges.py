"""What runtimes make of a model, each judge in a process of its own; a verdict is "yes" or why not.

The judges: onnx's checker and ONNX Runtime on a CPU (both are "cpu"); its CUDA provider over
tools/cuda_stub; TensorRT-RTX, which parses; WebGPU, on whatever adapter there is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from conversions import TOOLS
from processes import answer, job, run_process
from results import Row

from amp_rewrite import targets
from amp_rewrite.errors import OptionError
from amp_rewrite.runtimes.ort.providers import devices_of

PACKAGES = {"tensorrt": "tensorrt_rtx_cu13_bindings", "webgpu": "onnxruntime-ep-webgpu"}
"""Judge -> the package that it comes in, where that is not ONNX Runtime's."""

YES = "yes"


def missing(judge: str, stub: Path) -> str:
    """Return why a judge cannot be asked here and what helps, or ""."""
    if judge == "cuda" and not _stub_python(stub).exists():
        return f"there is no CUDA stub in {stub}; tools/cuda_stub/make_stub.py makes one"
    if judge == "tensorrt" and not any(map(find_spec, ("tensorrt_rtx", "tensorrt_rtx_bindings"))):
        return "TensorRT-RTX is not installed; the extra tensorrt has it"
    if judge == "webgpu":
        try:
            devices_of(targets.WEBGPU)
        except OptionError as error:
            return str(error)
    return ""


def on_cpu(path: Path, seconds: float) -> Row:
    """Return whether a model passes the checker, and whether ONNX Runtime loads it on a CPU."""
    verdicts = answer(run_process(job("check", str(path)), seconds))
    failure = verdicts.pop("error", "")
    return {"checker": failure, "loads": failure} if failure else verdicts


def on_cuda(path: Path, stub: Path, seconds: float) -> str:
    """Return whether the CUDA provider loads a model, over a stub of its libraries."""
    place = TOOLS / "cuda_stub" / "place.py"
    command = [str(_stub_python(stub)), str(place), str(path)]
    said = _line(command, seconds, {"LD_LIBRARY_PATH": str(stub / "lib")})
    return said if isinstance(said, str) else str(said.get("error", YES))


def by_tensorrt(path: Path, seconds: float) -> str:
    """Return whether TensorRT-RTX parses a model."""
    judge = TOOLS / "tensorrt" / "tensorrt_judge.py"
    said = _line([sys.executable, "-P", str(judge), str(path)], seconds)
    if isinstance(said, str):
        return said
    return YES if said["parsed"] else str(said["error"])


def taken(original: Path, path: Path, seconds: float) -> str:
    """Return whether this project's `check` and `verify` come to a verdict of a model."""
    said = answer(run_process(job("taken", str(original), str(path)), seconds))
    return str(said.get("taken") or said["error"])


def on_webgpu(path: Path, feeds: Path, seconds: float) -> str:
    """Return whether WebGPU runs a model."""
    said = answer(run_process(job("webgpu", str(path), str(feeds)), seconds))
    return str(said.get("webgpu") or said["error"])


def _stub_python(stub: Path) -> Path:
    return stub / "venv" / "bin" / "python"


def _line(
    command: Sequence[str], seconds: float, environment: dict[str, str] | None = None
) -> dict[str, Any] | str:
    """Return the first line of JSON that a judge prints, or what became of the judge."""
    given = None if environment is None else {**os.environ, **environment}
    try:
        done = subprocess.run(
            command, env=given, capture_output=True, text=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return f"not done in {seconds:g} s"
    found = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(found[0]) if found else "died"
