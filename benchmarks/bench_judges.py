"""Let runtimes judge what converters make of the corpus in float16, side by side.

    python benchmarks/bench.py judges
    python benchmarks/bench.py judges magika silero_v4 --judges cpu cuda
    python benchmarks/bench.py judges --cuda-stub build/cuda_stub

Every model is converted with default options, types of inputs and outputs kept. AutoCast gets a
virtual environment of its own in .cache/, made once. The judges: onnx's checker; ONNX Runtime on a
CPU (loads); its CUDA provider over tools/cuda_stub (loads); TensorRT-RTX (parses); the emulation of
tensor cores (finite, cosine); WebGPU (runs; on whatever adapter there is).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from bench_jobs import check
from bench_numerics import corpus_inputs
from conversions import CACHE, TOOLS, corpus_models
from exported import SHORT, Exported, cosines, references
from exported_jobs import FLOAT16
from processes import run_process
from results import Row
from tables import report

from amp_rewrite import dtypes
from amp_rewrite.errors import AmpError

JOBS = Path(__file__).resolve().parent / "exported_jobs.py"
CONVERTERS = ("amp_rewrite", "onnxconverter-common", "onnxruntime", "autocast")
PEERS = {"autocast": ("nvidia-modelopt[onnx]",)}
"""Converter -> the packages of its environment; the others are in that of the benchmark."""

JUDGES = ("cpu", "cuda", "tensorrt", "emulation", "webgpu")
YES = "yes"
_SECONDS = 300.0


def peer_python(tool: str) -> str:
    """Return the interpreter that has a converter, in an environment that is made once."""
    if tool not in PEERS:
        return sys.executable
    folder = CACHE / f"peer-{tool}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PEERS[tool]], check=True)
        (folder / "ready").touch()
    return str(python)


def convert(model: Path, tool: str, target: Path) -> Row:
    """Convert a model in a process of its own; return how long it took, or the error."""
    command = [peer_python(tool), "-P", str(JOBS), tool, FLOAT16, str(target.parent), str(model)]
    cost = run_process(command, _SECONDS)
    failure = target.with_suffix(".error")
    if failure.exists():
        return {"error": failure.read_text("utf-8")}
    return {"error": cost.error or "", "seconds": round(cost.wall, 2)}


def lines_of(command: Sequence[str], environment: dict[str, str] | None = None) -> list[Any]:
    """Return the JSON lines that a judge prints; none if it died."""
    given = None if environment is None else {**os.environ, **environment}
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def on_cuda(path: Path, stub: Path) -> str:
    """Return whether the CUDA provider loads a model, over a stub of its libraries."""
    python, place = stub / "venv" / "bin" / "python", TOOLS / "cuda_stub" / "place.py"
    found = lines_of([str(python), str(place), str(path)], {"LD_LIBRARY_PATH": str(stub / "lib")})
    return str(found[0].get("error", YES)) if found else "died"


def by_tensorrt(path: Path) -> str:
    """Return whether TensorRT-RTX parses a model."""
    judge = TOOLS / "tensorrt" / "tensorrt_judge.py"
    found = lines_of([sys.executable, str(judge), str(path)])
    if not found:
        return "died"
    return YES if found[0]["parsed"] else str(found[0]["error"])


def on_webgpu(path: Path, feeds: Path) -> str:
    """Return whether WebGPU runs a model."""
    command = [sys.executable, "-P", "-m", "amp_rewrite", "run", str(path), "--data", str(feeds)]
    try:
        done = subprocess.run(
            [*command, "--provider", "webgpu", "--repeat", "0", "--quiet"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"not done in {_SECONDS:g} s"
    return YES if done.returncode == 0 else done.stderr.strip()[:200]


def numbers(model: Exported, expected: Any, path: Path) -> Row:
    """Return the least cosine of an output in emulation; None is one that is not finite."""
    try:
        found = cosines(model, expected, path, dtypes.FLOAT16)[SHORT]
    except AmpError as error:
        return {"emulated": " ".join(str(error).split())[:200]}
    return {"emulated": YES, "cosine": round(found, 6) if math.isfinite(found) else None}


def judged(model: Exported, expected: Any, path: Path, options: argparse.Namespace) -> Row:
    """Return what all judges say of one conversion."""
    row: Row = check(path)
    if "cuda" in options.judges:
        row["cuda"] = on_cuda(path, options.cuda_stub)
    if "tensorrt" in options.judges:
        row["tensorrt"] = by_tensorrt(path)
    if "webgpu" in options.judges:
        row["webgpu"] = on_webgpu(path, model.cases[SHORT])
    if "emulation" in options.judges:
        row |= numbers(model, expected, path)
    return row


def corpus(names: Sequence[str], folder: Path) -> list[Exported]:
    """Return models of the corpus, all if none is named, with the inputs that are plausible.

    Raises:
        SystemExit: The corpus has no such model.
    """
    (place,) = corpus_models(["corpus"])
    index = json.loads((place.parent.parent / "corpus.json").read_text("utf-8"))
    specs = {entry["name"]: entry["inputs"] for entry in index}
    unknown = [name for name in names if name not in specs]
    if unknown:
        raise SystemExit(f"the corpus has no {unknown[0]}; it has {', '.join(specs)}")
    paths = corpus_models(names or specs)
    found: list[Exported] = []
    make_inputs = corpus_inputs().make_inputs
    for path in paths:
        feeds = folder / f"{path.stem}.npz"
        model = onnx.load(path, load_external_data=False)
        np.savez(feeds, **make_inputs(model, specs[path.stem]))
        found.append(Exported(path.stem, "", path, {SHORT: feeds}))
    return found


def measure(options: argparse.Namespace) -> list[Row]:
    """Return a row for every model and converter."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        for model in corpus(options.models, Path(name)):
            expected = references(model)
            for tool in options.tools:
                target = Path(name) / tool / model.path.name
                target.parent.mkdir(exist_ok=True)
                row = {"model": model.network, "tool": tool, **convert(model.path, tool, target)}
                if not row["error"]:
                    row |= judged(model, expected, target, options)
                print(row, file=sys.stderr, flush=True)
                rows.append({key: _without(name, said) for key, said in row.items()})
                target.unlink(missing_ok=True)
    return rows


def _without(folder: str, said: Any) -> Any:
    """Return a verdict without the folder of the moment."""
    return said.replace(f"{folder}/", "") if isinstance(said, str) else said


def main(arguments: list[str]) -> int:
    """Measure, print the table and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help="of the corpus; all if none is named")
    parser.add_argument("--tools", nargs="+", default=CONVERTERS, choices=CONVERTERS)
    parser.add_argument("--judges", nargs="+", default=JUDGES, choices=JUDGES)
    parser.add_argument("--cuda-stub", type=Path, default=TOOLS.parent / "build" / "cuda_stub")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    parser.add_argument("--folder", type=Path, help="where outputs go for a moment")
    options = parser.parse_args(arguments)
    report("judges", ["judges", *arguments], measure(options), options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
