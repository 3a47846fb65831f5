"""Measure the package against others, side by side in one run.

    python benchmarks/bench.py rewrite                   stress models and some of the corpus
    python benchmarks/bench.py rewrite a.onnx b.onnx     these models
    python benchmarks/bench.py rewrite --no-big3g        without the 3 GiB model
    python benchmarks/bench.py rewrite --json bench.json    figures, machine and versions as JSON
    python benchmarks/bench.py numerics [...]            the corpus in emulated mixed precision
    python benchmarks/bench.py gpu [...]                 every precision on a GPU, and PyTorch's
    python benchmarks/bench.py train [...]               training steps against PyTorch eager
    python benchmarks/bench.py loss-scaling [...]        what a loss scale costs in a step
    python benchmarks/bench.py shards [...]              steps on several shards, and projections

Every conversion is a process of its own: its CPU time, wall time and peak resident memory are the
kernel's account of it, imports included. This process imports nothing large, because Linux counts
the parent's memory into a child's peak.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parent / "tools"
CACHE = HERE.parent / ".cache"
SCRIPTS = {
    "gpu": "bench_gpu.py",
    "numerics": "bench_numerics.py",
    "train": "bench_train.py",
    "loss-scaling": "bench_loss_scaling.py",
    "shards": "bench_shards.py",
}
"""Subcommands with a file of their own."""
CONVERTERS = ("amp_rewrite", "onnxconverter-common", "onnxruntime")
STRESS = ("chain10k", "chain100k", "big3g")
CORPUS = ("minilm_l3", "resnet50_rand", "ppocrv4_rec", "silero_v6")
PACKAGES = ("amp-rewrite", "numpy", "onnx", "onnx-ir", "onnxruntime", "onnxconverter-common")
MIB = 2**20


@dataclass
class Measurement:
    """One conversion.

    Attributes:
        model: The model's name.
        tool: The converter, or "floor": copying the weights and converting them with numpy.
        status: The exit status.
        cpu: User and system time, seconds.
        wall: Elapsed time of the process, seconds.
        peak: Peak resident memory, MiB.
        size: Bytes of the output with its external data.
        facts: What the job said of itself: "seconds" without imports, and its "split".
        verdicts: Whether the output passes the checker and loads.
        error: The last line of stderr of a failed job.
    """

    model: str
    tool: str
    status: int = 0
    cpu: float = 0.0
    wall: float = 0.0
    peak: float = 0.0
    size: int = 0
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    verdicts: dict[str, Any] = field(default_factory=dict[str, Any])
    error: str = ""


def run_job(*arguments: str) -> tuple[int, float, Any, str, str]:
    """Run bench_jobs.py; return status, wall time, resource usage, stdout and stderr's end."""
    command = [sys.executable, "-P", str(HERE / "bench_jobs.py"), *arguments]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        lines = err.read().strip().splitlines() or [""]
        return process.returncode, wall, usage, out.read(), lines[-1]


def last_json(text: str) -> dict[str, Any]:
    """Return the JSON object in the last line of a job's output; tools may print before it."""
    lines = text.strip().splitlines()
    return json.loads(lines[-1]) if lines else {}


def measure(tool: str, model: Path, folder: Path) -> Measurement:
    """Convert one model with one tool and judge the output."""
    target = folder / f"{model.stem}.{tool}.onnx"
    status, wall, usage, out, error = run_job(tool, str(model), str(target))
    cpu = usage.ru_utime + usage.ru_stime
    found = Measurement(model.stem, tool, status, cpu, wall, usage.ru_maxrss / 1024)
    if status != 0:
        found.error = error
    else:
        found.facts = last_json(out)
        found.size = sum(p.stat().st_size for p in folder.glob(f"{target.stem}.*"))
        if tool != "floor":
            found.verdicts = last_json(run_job("check", str(target))[3])
    for path in folder.glob(f"{target.stem}.*"):
        path.unlink()
    return found


def find_models(names: list[str], big3g: bool) -> list[Path]:
    """Return the models to measure, made or fetched where they are not there yet."""
    if names:
        return [Path(name).resolve() for name in names]
    synthetic, corpus = CACHE / "synth", Path(os.environ.get("AMP_CORPUS", CACHE / "corpus"))
    stress = [name for name in STRESS if big3g or name != "big3g"]
    missing = [name for name in stress if not (synthetic / f"{name}.onnx").exists()]
    make = [sys.executable, str(TOOLS / "corpus" / "make_synth.py"), str(synthetic), *missing]
    if missing:
        subprocess.run(make, check=True)
    if not (corpus / "corpus.json").exists():
        fetch = [sys.executable, str(TOOLS / "corpus" / "fetch_corpus.py"), str(corpus)]
        subprocess.run([*fetch, "--derived"], check=True)
    return [
        *(synthetic / f"{name}.onnx" for name in stress),
        *(corpus / "models" / f"{name}.onnx" for name in CORPUS),
    ]


def warm(model: Path) -> None:
    """Read a model's files once, so that no tool pays for the disk and the next does not."""
    for path in model.parent.glob(f"{model.stem}.*"):
        with path.open("rb") as stream:
            while stream.read(MIB):
                pass


def has_external_data(model: Path) -> bool:
    """Tell whether a model's weights are in a file beside it."""
    return model.with_suffix(".data").exists() or Path(f"{model}.data").exists()


def machine() -> dict[str, Any]:
    """Describe what the figures were measured on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
    }


def versions() -> dict[str, str]:
    """Return the versions of the packages that take part."""
    found: dict[str, str] = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def ratios(measured: list[Measurement]) -> dict[str, float]:
    """Return the derived figures: linearity, and big3g against the floor."""
    by = {(m.model, m.tool): m for m in measured if m.status == 0}
    derived: dict[str, float] = {}
    for tool in CONVERTERS:
        small, large = by.get(("chain10k", tool)), by.get(("chain100k", tool))
        if small is not None and large is not None:
            derived[f"chain100k / chain10k, {tool}, without imports"] = (
                large.facts["seconds"] / small.facts["seconds"]
            )
    for (model, tool), found in by.items():
        least = by.get((model, "floor"))
        if least is not None and tool != "floor":
            derived[f"{model} / floor, {tool}, wall"] = found.wall / least.wall
    return derived


def print_table(measured: list[Measurement]) -> None:
    """Print one line a conversion, then the splits."""
    head = ("model", "tool", "CPU s", "wall s", "peak MiB", "out MiB", "checker", "loads")
    form = "{:<16}{:<22}{:>8}{:>8}{:>10}{:>10}  {:<10}{:<10}"
    print(form.format(*head))
    for m in measured:
        figures = (f"{m.cpu:.2f}", f"{m.wall:.2f}", f"{m.peak:.0f}", f"{m.size / MIB:.2f}")
        verdicts = [str(m.verdicts.get(key, "-")) for key in ("checker", "loads")]
        short = [v if v in ("yes", "-", "not tried") else "no" for v in verdicts]
        if m.status != 0:
            short = [f"failed: {m.error[:60]}", ""]
        print(form.format(m.model, m.tool, *figures, *short))
    for m in measured:
        split = m.facts.get("split", {})
        if split:
            parts = ", ".join(f"{step} {seconds:.2f}" for step, seconds in split.items())
            print(f"{m.model} {m.tool}, seconds: {parts}")


def rewrite(options: argparse.Namespace) -> int:
    """Measure every converter on every model."""
    models = find_models(options.models, options.big3g)
    measured: list[Measurement] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        for model in models:
            tools = [*(["floor"] if has_external_data(model) else []), *options.tools]
            warm(model)
            for tool in tools:
                print(f"{model.stem}: {tool} ...", file=sys.stderr, flush=True)
                measured.append(measure(tool, model, Path(name)))
    derived = ratios(measured)
    print_table(measured)
    for label, ratio in derived.items():
        print(f"{label}: {ratio:.2f}")
    facts = {"machine": machine(), "versions": versions(), "ratios": derived}
    print(json.dumps({"machine": facts["machine"], "versions": facts["versions"]}))
    if options.json is not None:
        text = json.dumps({**facts, "measured": [asdict(m) for m in measured]}, indent=1)
        options.json.write_text(text, "utf-8")
    return 0


def main(arguments: list[str]) -> int:
    """Parse the command line and run a subcommand."""
    if arguments and arguments[0] in SCRIPTS:
        script = str(HERE / SCRIPTS[arguments[0]])
        return subprocess.run([sys.executable, script, *arguments[1:]], check=False).returncode
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for name in SCRIPTS:
        commands.add_parser(name, help=f"see tools/{SCRIPTS[name]}", add_help=False)
    command = commands.add_parser("rewrite", help="convert models with every tool")
    command.add_argument("models", nargs="*", help="ONNX files; none: stress models and corpus")
    command.add_argument("--tools", nargs="+", default=list(CONVERTERS), choices=CONVERTERS)
    command.add_argument("--no-big3g", dest="big3g", action="store_false")
    command.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    command.add_argument("--folder", type=Path, help="where outputs go for a moment (needs 8 GiB)")
    command.set_defaults(run=rewrite)
    options = parser.parse_args(arguments)
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
