"""Time the corpus on OpenVINO: float32, ours, its own bfloat16, and ONNX Runtime beside it.

    python benchmarks/bench.py openvino --json benchmarks/results/openvino.json
    python benchmarks/bench.py openvino minilm_l3 magika --rounds 5
    python benchmarks/bench.py openvino --json FILE --again resnet50_rand   measured anew
    python benchmarks/bench.py openvino --batch 8     models whose batch is free, with 8 examples
    python benchmarks/bench.py openvino --exported    the families of tools/corpus/export_models.py
    python benchmarks/bench.py openvino --folder DIR  DIR/NAME.onnx, fed DIR/NAME.npz
    python benchmarks/bench.py openvino bert.dynamo --exported --torch-python PYTHON
                                                      beside PyTorch, in an interpreter that has it

Every model that OpenVINO loads in float32 is converted (`convert --precision bfloat16 --target
openvino`) and runs on two threads, a process for each tool and model, the tools of a model one
after the other: `float32` is the file as it is with the hint f32, `amp_rewrite` the converted one
with the same hint, `hint` the float32 file with the hint bf16. ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16
measures what a processor without AMX would do. Exported models are fed their long
inputs where they have such; --torch-python runs what was exported in PyTorch, in float32 (`torch`)
and with autocast to bfloat16. Errors are to what OpenVINO computes in float32. What is in the file
of --json is not measured again: a run that --seconds ends is continued by the same command.
--rounds 0 converts only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from bench_judges import corpus
from conversions import CACHE
from exported import SHORT, Exported, exported
from processes import answer, run_process
from results import Results, Row, torch_versions, version_in
from tables import report

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.runtimes.openvino.package import computes_in

HERE = Path(__file__).resolve().parent
LONG = "long"
OURS, FULL = "amp_rewrite", "float32"
TOOLS = (FULL, OURS, "hint", "onnxruntime")
TORCH = ("torch", "torch-autocast")
_SAME = 1e-3
"""How far from OpenVINO's float32 PyTorch's is, at most, if their weights are the same."""
_SECONDS, _LIMIT = 0.5, 120.0


def converted(model: Exported, folder: Path, *, anew: bool) -> Row:
    """Convert a model; return how many nodes became low, and the error if there is one.

    Args:
        model: The model.
        folder: Where the converted one is, or goes.
        anew: Do not take the one that is there.
    """
    path, told = folder / f"{model.network}.onnx", folder / f"{model.network}.json"
    if anew or not told.exists():
        words = ["--precision", "bfloat16", "--target", "openvino", "--quiet"]
        files = [str(model.path), "-o", str(path), "--report", str(told)]
        command = [sys.executable, "-P", "-m", "amp_rewrite", "convert", *files, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            path.unlink(missing_ok=True)
            return {"error": " ".join(done.stderr.split())[:200]}
    summary = json.loads(told.read_text("utf-8"))["summary"]
    return {"low": summary["nodes_converted"], "error": ""}


def measured(
    model: Exported, command: Sequence[str], tool: str, folder: Path, seconds: float
) -> Row:
    """Run a model with a tool in a process of its own; return milliseconds, or the error.

    Args:
        model: The model.
        command: The interpreter, its script, the tool and what it runs.
        tool: The tool.
        folder: Where the outputs go.
        seconds: How long the model is run.
    """
    outputs = folder / f"{model.network}.{tool}.npz"
    words = [str(model.cases[SHORT]), str(outputs), str(seconds)]
    found = answer(run_process([*command, *words], _LIMIT))
    if "error" in found:
        return {"error": found["error"][:200]}
    return {"ms": statistics.median(found["ms"]), "least": min(found["ms"]), "error": ""}


def distances(expected: Path, found: Path) -> Row:
    """Return the least cosine of a float output, and the largest distance relative to its norm.

    Both are None if an output is not finite that is so in float32.
    """
    cosines, relative = [1.0], [0.0]
    with np.load(expected) as reference, np.load(found) as outputs:
        for name in reference.files:
            wanted, got = (file[name].astype(np.float64).ravel() for file in (reference, outputs))
            if reference[name].dtype.kind != "f" or not np.isfinite(wanted).all():
                continue
            if not np.isfinite(got).all():
                return {"cosine": None, "distance": None}
            size = float(np.linalg.norm(wanted)) or 1.0
            relative.append(float(np.linalg.norm(got - wanted)) / size)
            cosines.append(float(wanted @ got) / (size * float(np.linalg.norm(got)) or 1.0))
    return {"cosine": round(min(cosines), 7), "distance": float(f"{max(relative):.3g}")}


def of_batch(model: Exported, size: int, folder: Path) -> Exported | None:
    """Return a model with inputs of several examples; None if the length of its batch is fixed.

    Args:
        model: The model with inputs of one example.
        size: How many times these are repeated, along every axis of the batch's name.
        folder: Where the new inputs go.
    """
    graph = onnx.load(model.path, load_external_data=False).graph
    feeds = dict(np.load(model.cases[SHORT]))
    shapes = {i.name: i.type.tensor_type.shape.dim for i in graph.input if i.name in feeds}
    batch = next((dims[0] for dims in shapes.values() if dims), None)
    if batch is None or batch.dim_value > 0:
        return None
    for name, dims in shapes.items():
        for axis, dim in enumerate(dims):
            if dim.dim_param == batch.dim_param and (batch.dim_param or axis == 0):
                feeds[name] = np.repeat(feeds[name], size, axis)
    repeated = folder / f"{model.network}.x{size}.npz"
    np.savez(repeated, **feeds)
    return replace(model, network=f"{model.network} x{size}", cases={SHORT: repeated})


class Measurement:
    """The rows of all models: those that were there, and what each round adds."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        """Take the rows of an earlier run, without those of models that are measured again."""
        self._options, self._folder = options, folder
        self._tools = (*TOOLS, *(TORCH if options.torch_python else ()))
        path: Path | None = options.json
        rows = Results.read(path).rows if path is not None and path.exists() else []
        again = set(options.again)
        self.rows = [row for row in rows if row["model"] not in again]

    def rounds_of(self, model: Exported) -> int:
        """Return how many rounds of a model there are; more than any if it cannot be measured."""
        rows = [row for row in self.rows if row["model"] == model.network]
        if any(row["tool"] == FULL and row["error"] for row in rows):
            return sys.maxsize
        return max((len(row["ms"]) for row in rows), default=0)

    def convert(self, models: Sequence[Exported]) -> None:
        """Convert what is not converted yet; a model that cannot be is a row with its error."""
        for model in models:
            print(f"converting {model.network} ...", file=sys.stderr, flush=True)
            row = self._row(model, OURS)
            row |= converted(model, _folder(), anew=self._options.rounds == 0)

    def add_round(self, model: Exported) -> None:
        """Run all tools on a model, one after the other."""
        for tool in self._tools:
            row = self._row(model, tool)
            needed = (FULL, tool, *(TORCH[:1] if tool in TORCH else ()))
            if any(self._row(model, other)["error"] for other in needed):
                continue
            command, seconds = self.command(model, tool), self._options.process_seconds
            found = measured(model, command, tool, self._folder, seconds)
            row["error"] = found.pop("error")
            if not row["error"]:
                files = [self._folder / f"{model.network}.{name}.npz" for name in (FULL, tool)]
                row |= distances(*files)
            if tool == TORCH[0] and (row.get("distance") or 0) > _SAME:
                row["error"] = "its weights are not the file's: export it with these packages"
                continue
            for figure, number in found.items():
                row[figure].append(round(number, 4))
        self._report_progress(model)

    def command(self, model: Exported, tool: str) -> list[str]:
        """Return the interpreter, the script, and what it runs with which tool."""
        if tool in TORCH:
            network = model.network.partition(".")[0]
            return [self._options.torch_python, str(HERE / "torch_jobs.py"), tool, network]
        path = _folder() / f"{model.network}.onnx" if tool == OURS else model.path
        return [sys.executable, str(HERE / "openvino_jobs.py"), tool, str(path)]

    def _row(self, model: Exported, tool: str) -> Row:
        """Return the row of a model and a tool, which is made if there is none."""
        for row in self.rows:
            if (row["model"], row["tool"]) == (model.network, tool):
                return row
        row: Row = {"model": model.network, "tool": tool, "ms": [], "least": [], "error": ""}
        self.rows.append(row)
        return row

    def _report_progress(self, model: Exported) -> None:
        rows = {row["tool"]: row for row in self.rows if row["model"] == model.network}
        texts = [
            f"{tool} {min(row['least']):.3g} ({row.get('distance', 0):.1e})"
            if row["least"] and row.get("distance") is not None
            else f"{tool} {row['error'] or 'not finite'}"
            for tool, row in rows.items()
        ]
        print(f"{model.network}: {', '.join(texts)}", file=sys.stderr, flush=True)


def _folder() -> Path:
    """Return where our files are, for what the processor may use of its instructions."""
    names = ["openvino", os.environ.get("ONEDNN_MAX_CPU_ISA")]
    folder = CACHE / "_".join(name.lower() for name in names if name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _turns(found: Measurement, models: Sequence[Exported], rounds: int) -> Iterator[Exported]:
    """Yield models, those with the fewest rounds first, until all have enough."""
    for number in range(rounds):
        yield from (model for model in models if found.rounds_of(model) <= number)


def main(arguments: list[str]) -> int:
    """Measure, print the table and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help="of the corpus; all if none is named")
    parser.add_argument("--rounds", type=int, default=3)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--batch", type=int, default=1, metavar="N", help="feed N examples at once")
    what.add_argument("--exported", action="store_true", help="the exported models instead")
    what.add_argument("--folder", type=Path, help="the models of a folder instead, each with .npz")
    parser.add_argument(
        "--torch-python", metavar="PYTHON", help="an interpreter with torch: with --exported"
    )
    parser.add_argument("--again", nargs="+", default=[], metavar="MODEL", help="forget its rows")
    parser.add_argument(
        "--process-seconds", type=float, default=_SECONDS, help="how long a model is run each time"
    )
    parser.add_argument("--seconds", type=float, help="begin no other model after them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures, which are added to")
    options = parser.parse_args(arguments)
    if options.torch_python and not options.exported:
        parser.error("--torch-python is for exported networks: add --exported")
    if not computes_in(BFLOAT16.name):
        raise SystemExit("this processor has no instructions for bfloat16: there is nothing to see")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        found = Measurement(options, Path(name))
        models = chosen(options, Path(name))
        found.convert(models)
        for model in _turns(found, models, options.rounds):
            if options.seconds is not None and time.monotonic() - start > options.seconds:
                print("time is up; the same command goes on", file=sys.stderr)
                break
            found.add_round(model)
    words = ["openvino", *_lasting(options)]
    versions = {"openvino": version_in(sys.executable, "openvino")}
    if options.torch_python:
        versions |= torch_versions(options.torch_python)
    report("openvino", words, _in_order(found.rows), options.json, versions)
    return 0


def chosen(options: argparse.Namespace, folder: Path) -> list[Exported]:
    """Return what is measured, with its inputs."""
    if options.exported:
        return [_long(m) for m in exported() if m.name in (options.models or [m.name])]
    if options.folder is not None:
        paths = sorted(options.folder.glob("*.onnx"))
        wanted = options.models or [path.stem for path in paths]
        return [
            Exported(path.stem, path.stem, path, {SHORT: path.with_suffix(".npz")})
            for path in paths
            if path.stem in wanted
        ]
    models = corpus(options.models, folder)
    if options.batch == 1:
        return models
    larger = (of_batch(model, options.batch, folder) for model in models)
    return [model for model in larger if model is not None]


def _long(model: Exported) -> Exported:
    """Return an exported model under its whole name, with the long inputs if it has such."""
    return replace(
        model, network=model.name, cases={SHORT: model.cases.get(LONG, model.cases[SHORT])}
    )


def _lasting(options: argparse.Namespace) -> list[str]:
    """Return the words of the command without those that only say where it pauses."""
    words = [*options.models, "--rounds", str(options.rounds)]
    words += ["--process-seconds", str(options.process_seconds)]
    words += ["--batch", str(options.batch)] if options.batch != 1 else []
    words += ["--exported"] if options.exported else []
    words += ["--folder", "DIR"] if options.folder else []
    words += ["--torch-python", "torch-python"] if options.torch_python else []
    return [*words, "--json", str(options.json)] if options.json else words


def _in_order(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the rows model by model, the tools in their order."""
    return sorted(rows, key=lambda row: (row["model"], (*TOOLS, *TORCH).index(row["tool"])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
