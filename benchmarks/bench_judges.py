"""Let runtimes judge what converters make of the corpus in float16, side by side.

    python benchmarks/bench.py judges
    python benchmarks/bench.py judges magika silero_v4 --judges cpu cuda
    python benchmarks/bench.py judges --tools amp_rewrite_webgpu --judges webgpu
    python benchmarks/bench.py judges --peer-python autocast=PYTHON    an interpreter that has it

Every model is converted with default options, types of inputs and outputs kept; the first row is
of the models as they are. AutoCast and onnxsim get virtual environments of their own in .cache/,
made once. The judges: onnx's checker, ONNX Runtime on a CPU (loads), its CUDA provider over
tools/cuda_stub (loads), TensorRT-RTX (parses), WebGPU (runs, on whatever adapter there is), `check`
and `verify` (come to a verdict, whichever it is), and the emulation of tensor cores (finite,
cosine). A conversion or a judge that takes too long has failed.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import judges
import numpy as np
import onnx
from bench_numerics import corpus_inputs
from conversions import TOOLS, corpus_models
from exported import SHORT, Exported, cosines, references
from exported_jobs import FLOAT16
from peers import given_pythons, peer_versions, python_of
from processes import run_process
from results import Row, version_in
from tables import ORIGINAL, report

from amp_rewrite import dtypes
from amp_rewrite.errors import AmpError

JOBS = Path(__file__).resolve().parent / "exported_jobs.py"
CONVERTERS = (ORIGINAL, "amp_rewrite", "onnxconverter-common", "onnxruntime", "autocast", "onnxsim")
OTHERS = ("amp_rewrite_webgpu", "onnxconverter-common, repaired", "onnxruntime, repaired")
"""Converters that have to be asked for; the last two are followed by `repair`."""

JUDGES = ("cpu", "cuda", "tensorrt", "webgpu", "taken", "emulation")
_SECONDS = 120.0


def convert(model: Path, tool: str, target: Path, python: str, seconds: float) -> Row:
    """Convert a model in a process of its own; return how long it took, or the error."""
    command = [python, "-P", str(JOBS), tool, FLOAT16, str(target.parent), str(model)]
    cost = run_process(command, seconds)
    failure = target.with_suffix(".error")
    if failure.exists():
        return {"error": failure.read_text("utf-8")}
    return {"error": cost.error or "", "seconds": round(cost.wall, 2)}


def numbers(model: Exported, expected: Any, path: Path) -> Row:
    """Return the least cosine of an output in emulation; None is one that is not finite."""
    try:
        found = cosines(model, expected, path, dtypes.FLOAT16)[SHORT]
    except AmpError as error:
        return {"emulated": " ".join(str(error).split())[:200]}
    return {"emulated": judges.YES, "cosine": round(found, 6) if math.isfinite(found) else None}


def judged(model: Exported, expected: Any, path: Path, options: argparse.Namespace) -> Row:
    """Return what all judges say of one conversion."""
    seconds: float = options.seconds
    row: Row = {}
    if "cpu" in options.judges:
        row |= judges.on_cpu(path, seconds)
    if "cuda" in options.judges:
        row["cuda"] = judges.on_cuda(path, options.cuda_stub, seconds)
    if "tensorrt" in options.judges:
        row["tensorrt"] = judges.by_tensorrt(path, seconds)
    if "webgpu" in options.judges:
        row["webgpu"] = judges.on_webgpu(path, model.cases[SHORT], seconds)
    if "taken" in options.judges:
        row["taken"] = judges.taken(model.path, path, seconds)
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


def measure(options: argparse.Namespace, pythons: dict[str, str]) -> list[Row]:
    """Return a row for every model and converter, whose interpreters are given."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        for model in corpus(options.models, Path(name)):
            expected = references(model)
            for tool in options.tools:
                row = row_of(model, expected, Path(name), tool, pythons[tool], options)
                print(row, file=sys.stderr, flush=True)
                rows.append({key: _without(name, said) for key, said in row.items()})
    return rows


def row_of(
    model: Exported,
    expected: Any,
    folder: Path,
    tool: str,
    python: str,
    options: argparse.Namespace,
) -> Row:
    """Return what becomes of a model that one converter converts, in a folder for its output."""
    row: Row = {"model": model.network, "tool": tool, "error": ""}
    if tool == ORIGINAL:
        return row | judged(model, expected, model.path, options)
    target = folder / tool / model.path.name
    target.parent.mkdir(exist_ok=True)
    row |= convert(model.path, tool, target, python, options.seconds)
    if not row["error"]:
        row |= judged(model, expected, target, options)
    for path in target.parent.iterdir():
        path.unlink()
    return row


def _without(folder: str, said: Any) -> Any:
    """Return a verdict without the folder of the moment."""
    return said.replace(f"{folder}/", "") if isinstance(said, str) else said


def main(arguments: list[str]) -> int:
    """Measure, print the table and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help="of the corpus; all if none is named")
    parser.add_argument("--tools", nargs="+", default=CONVERTERS, choices=(*CONVERTERS, *OTHERS))
    parser.add_argument("--judges", nargs="+", default=JUDGES, choices=JUDGES)
    parser.add_argument("--cuda-stub", type=Path, default=TOOLS.parent / "build" / "cuda_stub")
    parser.add_argument("--peer-python", nargs="+", default=[], metavar="TOOL=PYTHON")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="of a process at most")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    parser.add_argument("--folder", type=Path, help="where outputs go for a moment")
    options = parser.parse_args(arguments)
    for judge in options.judges:
        if why := judges.missing(judge, options.cuda_stub):
            raise SystemExit(f"{why}; or leave {judge} out of --judges")
    given = given_pythons(options.peer_python)
    pythons = {tool: python_of(tool, given) for tool in options.tools}
    rows = measure(options, pythons)
    packages = (judges.PACKAGES[judge] for judge in options.judges if judge in judges.PACKAGES)
    versions = {package: version_in(sys.executable, package) for package in packages}
    versions |= peer_versions(options.tools, pythons)
    report("judges", ["judges", *arguments], rows, options.json, versions)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
