"""Measure what conversions do to the numbers of exported models, side by side with other tools.

    python tools/corpus/export_models.py .cache/exported    makes the models; needs torch
    python benchmarks/bench.py exported
    python benchmarks/bench.py exported llama.dynamo vit.torchscript
    python benchmarks/bench.py exported --autocast-python PYTHON    an interpreter with modelopt

Every model is converted with default options, types of inputs and outputs kept, and emulated on
short inputs and on hard ones: late positions, long texts, masked rows, zeros, large numbers.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench_jobs import check
from exported import Exported, cosines, exported, folder, low_products, references
from exported_jobs import FLOAT16, FLOAT16_ONLY
from processes import run_process
from results import Row
from tables import report

from amp_rewrite import dtypes
from amp_rewrite.errors import AmpError

JOBS = Path(__file__).resolve().parent / "exported_jobs.py"
CONVERTERS = ("amp_rewrite", "onnxconverter-common", "onnxruntime", "autocast")
_SECONDS = 1200.0


def convert(
    models: Sequence[Exported], tool: str, precision: str, target: Path, python: str
) -> None:
    """Convert models with one tool, in one process.

    Raises:
        SystemExit: The process failed.
    """
    target.mkdir(parents=True)
    paths = [str(model.path) for model in models]
    command = [python, "-P", str(JOBS), tool, precision, str(target), *paths]
    cost = run_process(command, _SECONDS)
    if cost.error:
        raise SystemExit(f"{tool}: {cost.error}")


def judged(model: Exported, expected: Any, target: Path, precision: str) -> Row:
    """Return what there is to say of one conversion."""
    path = target / model.path.name
    failure = path.with_suffix(".error")
    if failure.exists():
        return {"error": failure.read_text("utf-8")}
    row: Row = {"error": "", **check(path)}
    try:
        row["low"], row["products"] = low_products(path)
        found = cosines(model, expected, path, dtypes.low_dtype(precision))
        row["cosine"] = {case: _number(cosine) for case, cosine in found.items()}
    except AmpError as error:
        row["error"] = " ".join(str(error).split())[:200]
    return row


def _number(cosine: float) -> float | None:
    """Return what JSON can hold: None for what is not finite."""
    return round(cosine, 9) if math.isfinite(cosine) else None


def measure(models: Sequence[Exported], options: argparse.Namespace) -> list[Row]:
    """Return a row for every model, precision and tool."""
    pythons = {"autocast": options.autocast_python}
    pairs = [
        (tool, precision)
        for precision in options.precisions
        for tool in options.tools
        if (precision == FLOAT16 or tool not in FLOAT16_ONLY) and pythons.get(tool, True)
    ]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        for tool, precision in pairs:
            print(f"{tool}, {precision}", file=sys.stderr, flush=True)
            target = Path(name) / f"{tool}-{precision}"
            convert(models, tool, precision, target, pythons.get(tool) or sys.executable)
        for model in models:
            print(model.name, file=sys.stderr, flush=True)
            rows += _rows(model, pairs, Path(name))
    return rows


def _rows(model: Exported, pairs: Sequence[tuple[str, str]], outputs: Path) -> list[Row]:
    expected = references(model)
    return [
        {
            "model": model.network,
            "exporter": model.exporter,
            "precision": precision,
            "tool": tool,
            **judged(model, expected, outputs / f"{tool}-{precision}", precision),
        }
        for tool, precision in pairs
    ]


def main(arguments: list[str]) -> int:
    """Measure, print the table and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help="NETWORK.EXPORTER instead of all")
    parser.add_argument("--tools", nargs="+", default=CONVERTERS, choices=CONVERTERS)
    parser.add_argument("--precisions", nargs="+", default=dtypes.LOW, choices=dtypes.LOW)
    parser.add_argument("--autocast-python", metavar="PYTHON", help="has modelopt; none: left out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    parser.add_argument("--folder", type=Path, help="where outputs go for a moment")
    options = parser.parse_args(arguments)
    models = [m for m in exported() if not options.models or m.name in options.models]
    if not models:
        raise SystemExit(f"{folder()} has no such model; tools/corpus/export_models.py makes them")
    report("exported", ["exported", *arguments], measure(models, options), options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
