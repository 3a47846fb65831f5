"""Measure inference and training in float32, TF32, float16 and bfloat16 on a GPU, against PyTorch.

    python benchmarks/bench.py gpu                                everything; writes a JSON file
    python benchmarks/bench.py gpu --networks mlp resnet --models minilm_l3
    python benchmarks/bench.py gpu --provider CPUExecutionProvider   a dry run: small sizes, 2 steps

Every measurement is a process of its own, so that no other session's memory is in its figures: the
median of the steps after warming up, and the peak of the device's memory. Training is Adam with a
dynamic loss scale for float16, whose updates are conditional by If, or by Where ("select").
PyTorch (eager and torch.compile, both under autocast for the low types) takes part if the
interpreter `--torch-python` has it. What fails is in the file with its reason. A dry run measures
nothing of use: a CPU computes float16 in float32, and bfloat16 is emulated.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bench_gpu_jobs
from conversions import CACHE
from cuda_device import cuda_device
from results import RESULTS, machine, torch_versions, versions

HERE = Path(__file__).resolve().parent
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
NETWORKS = ("mlp", "digits_cnn", "resnet", "transformer", "bert_base")
MODELS = ("minilm_l3", "resnet50_rand", "light_densenet121")
PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
VARIANTS = {"float16": ("if", "select")}
"""Precision -> how steps may be built; others have no conditional update."""
TORCH = ("eager", "compile")


@dataclass
class Case:
    """One measurement.

    Attributes:
        task: "training" or "inference".
        name: The network or model.
        tool: "amp_rewrite", "eager" or "compile".
        precision: One of PRECISIONS.
        variant: "plain", "if" or "select"; see the module.
        figures: What the job measured: batch, ms, peak_mib, casts, loss, ...
        error: Why there are no figures.
    """

    task: str
    name: str
    tool: str
    precision: str
    variant: str = "plain"
    figures: dict[str, Any] = field(default_factory=dict[str, Any])
    error: str = ""

    @property
    def label(self) -> str:
        """The measurement in words."""
        how = "" if self.variant == "plain" else f" {self.variant}"
        return f"{self.task} {self.name} {self.tool} {self.precision}{how}"


def cases(options: argparse.Namespace) -> list[Case]:
    """Return what is to be measured."""
    on_gpu = options.provider == CUDA
    precisions = [p for p in options.precisions if on_gpu or p != "tf32"]
    found: list[Case] = []
    for name in options.networks:
        for precision in precisions:
            variants = VARIANTS.get(precision, ("plain",))
            found += [Case("training", name, "amp_rewrite", precision, v) for v in variants]
            found += [Case("training", name, tool, precision) for tool in options.torch]
    for name in options.models:
        found += [Case("inference", name, "amp_rewrite", p) for p in precisions]
    return found


def measure(case: Case, options: argparse.Namespace) -> None:
    """Run a case in a process of its own, and note its figures or its error."""
    ours = case.tool == "amp_rewrite"
    job = {**asdict(case), "provider": options.provider, "steps": options.steps}
    job |= {"small": options.small, "folder": str(options.corpus), "device": options.device}
    python = sys.executable if ours else options.torch_python
    command = [python, str(HERE / "bench_gpu_jobs.py"), json.dumps(job)]
    with tempfile.TemporaryFile("w+") as errors:
        try:
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                check=False,
                timeout=options.timeout,
            )
        except subprocess.TimeoutExpired:
            case.error = f"not done after {options.timeout} seconds"
            return
        errors.seek(0)
        lines = errors.read().strip().splitlines() or ["no message"]
    if done.returncode:
        case.error = lines[-1]
    else:
        case.figures = json.loads(done.stdout.strip().splitlines()[-1])


def describe(options: argparse.Namespace) -> dict[str, Any]:
    """Return what the figures were measured on and with."""
    device = cuda_device(options.device) if options.provider == CUDA else None
    packages = {**versions(), **torch_versions(options.torch_python)}
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "provider": options.provider,
        "device": None if device is None else asdict(device),
        "driver": bench_gpu_jobs.driver_version() if options.provider == CUDA else None,
        "machine": machine(),
        "versions": packages,
        "steps": options.steps,
        "small": options.small,
    }


def table(measured: list[Case]) -> str:
    """Return the figures as a table, one line a measurement."""
    form = "{:<52}{:>7}{:>10}{:>10}{:>7}"
    lines = [form.format("", "batch", "ms", "peak MiB", "casts")]
    for case in measured:
        found = case.figures
        if case.error:
            lines.append(f"{case.label:<52}  {case.error[:100]}")
            continue
        peak, casts = found.get("peak_mib"), found.get("casts")
        shown = ("-" if peak is None else f"{peak:.0f}", "-" if casts is None else casts)
        lines.append(form.format(case.label, found["batch"], f"{found['ms']:.3f}", *shown))
    return "\n".join(lines)


def run(options: argparse.Namespace) -> int:
    """Measure everything; write the file after each case, so that nothing is lost."""
    facts = describe(options)
    if options.provider == CUDA and facts["device"] is None:
        print("no CUDA device: use --provider CPUExecutionProvider for a dry run", file=sys.stderr)
        return 1
    output: Path = options.json or RESULTS / default_name(facts)
    output.parent.mkdir(parents=True, exist_ok=True)
    measured = cases(options)
    for number, case in enumerate(measured):
        print(f"{number + 1}/{len(measured)} {case.label}", file=sys.stderr, flush=True)
        start = time.perf_counter()
        measure(case, options)
        case.figures["seconds"] = round(time.perf_counter() - start, 1)
        done = [asdict(c) for c in measured[: number + 1]]
        output.write_text(json.dumps({**facts, "measured": done}, indent=1) + "\n", "utf-8")
    print(table(measured))
    print(f"wrote {output}")
    return int(all(case.error for case in measured))


def default_name(facts: dict[str, Any]) -> str:
    """Return the name of the file for a device."""
    device = facts["device"]
    word = "cpu-dry-run" if device is None else "-".join(device["name"].lower().split())
    return f"gpu-{word}.json"


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--provider", default=CUDA, choices=(CUDA, CPU))
    parser.add_argument("--device", type=int, default=0, help="number of the CUDA device")
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--models", nargs="*", default=list(MODELS), help="of the corpus")
    parser.add_argument("--precisions", nargs="+", default=list(PRECISIONS), choices=PRECISIONS)
    parser.add_argument("--torch", nargs="*", default=list(TORCH), choices=TORCH)
    parser.add_argument("--torch-python", default=sys.executable, help="interpreter with torch")
    corpus = Path(os.environ.get("AMP_CORPUS", CACHE / "corpus"))
    parser.add_argument("--corpus", type=Path, default=corpus, help="see tools/corpus")
    parser.add_argument("--steps", type=int, help="of each measurement; default 50, dry run 2")
    parser.add_argument("--timeout", type=int, default=600, help="seconds for each measurement")
    parser.add_argument("--json", type=Path, help="default: benchmarks/results/gpu-<device>.json")
    parser.add_argument("--small", action="store_true", help="small sizes; so is a dry run")
    options = parser.parse_args(arguments)
    options.small = options.small or options.provider == CPU
    options.steps = options.steps or (2 if options.provider == CPU else 50)
    return options


if __name__ == "__main__":
    sys.exit(run(parse(sys.argv[1:])))
