"""Conversions of models by several tools, side by side: what `rewrite` and `scaling` measure."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from processes import Cost, answer, figures, interleaved, job, run_process
from results import Row

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parent / "tools"
CACHE = HERE.parent / ".cache"
CONVERTERS = ("amp_rewrite", "onnxconverter-common", "onnxruntime")
SYNTHETIC = ("chain8", "chain10k", "chain100k", "big3g")
"""Models that tools/corpus/make_synth.py makes."""
MIB = 2**20


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every comparison of conversions has."""
    parser.add_argument("models", nargs="*", help="ONNX files instead of those of the table")
    parser.add_argument("--tools", nargs="+", default=CONVERTERS, choices=CONVERTERS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=600, help="seconds of one conversion")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    parser.add_argument("--folder", type=Path, help="where outputs go for a moment (needs 8 GiB)")


def made_models(names: Iterable[str]) -> list[Path]:
    """Return the paths of models that are made here, and make those that are not there yet."""
    folder = CACHE / "synth"
    paths = [folder / f"{name}.onnx" for name in names]
    for path in paths:
        if not path.exists():
            synthetic = path.stem in SYNTHETIC
            script = TOOLS / "corpus" / "make_synth.py" if synthetic else HERE / "stress_models.py"
            subprocess.run([sys.executable, str(script), str(folder), path.stem], check=True)
    return paths


def corpus_models(names: Iterable[str]) -> list[Path]:
    """Return the paths of models of the corpus, fetched where it is not there yet."""
    corpus = Path(os.environ.get("AMP_CORPUS", CACHE / "corpus"))
    if not (corpus / "corpus.json").exists():
        fetch = [sys.executable, str(TOOLS / "corpus" / "fetch_corpus.py"), str(corpus)]
        subprocess.run([*fetch, "--derived"], check=True)
    return [corpus / "models" / f"{name}.onnx" for name in names]


def compare(models: Iterable[Path], options: argparse.Namespace) -> list[Row]:
    """Return a row for every tool on every model."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for model in models:
            print(model.stem, file=sys.stderr, flush=True)
            _warm(model)
            rows += _compare_on(model, options, Path(folder))
    return rows


def _compare_on(model: Path, options: argparse.Namespace, folder: Path) -> list[Row]:
    tools = [*(["floor"] if _has_external_data(model) else []), *options.tools]
    facts: dict[str, Row] = {}

    def convert(tool: str) -> Cost:
        """Convert the model; judge what a tool wrote in its first round."""
        target = folder / f"{model.stem}.{tool}.onnx"
        cost = run_process(job(tool, str(model), str(target)), options.timeout)
        if tool not in facts:
            facts[tool] = {} if cost.error else _judged(target, tool)
        for path in folder.iterdir():
            path.unlink()
        return cost

    nodes = answer(run_process(job("count", str(model)), options.timeout)).get("nodes", 0)
    costs = interleaved(options.rounds, {tool: lambda tool=tool: convert(tool) for tool in tools})
    return [
        {"model": model.stem, "nodes": nodes, "tool": tool, **figures(costs[tool]), **facts[tool]}
        for tool in tools
    ]


def _judged(target: Path, tool: str) -> Row:
    """Return the size of what a tool wrote, in MiB, and whether it is valid."""
    size = sum(path.stat().st_size for path in target.parent.iterdir()) / MIB
    if tool == "floor":
        return {"size": round(size, 2)}
    verdicts = answer(run_process(job("check", str(target)), 600))
    texts = {judge: str(text).replace(f"{target.parent}/", "") for judge, text in verdicts.items()}
    return {"size": round(size, 2), **texts}


def _warm(model: Path) -> None:
    """Read a model's files once, so that no tool pays for the disk and the next does not."""
    for path in model.parent.glob(f"{model.stem}.*"):
        with path.open("rb") as stream:
            while stream.read(MIB):
                pass


def _has_external_data(model: Path) -> bool:
    return model.with_suffix(".data").exists() or Path(f"{model}.data").exists()
