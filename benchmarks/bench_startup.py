"""Measure what the command line costs before it does anything, and on a small model.

    python benchmarks/bench.py startup

A residual network of 126 nodes is converted by `amp-rewrite convert`, and by other tools called
from Python, which have no command: whole processes, imports included.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from conversions import CONVERTERS, made_models
from processes import Cost, figures, interleaved, job, run_process
from results import Row
from tables import report

COMMAND = (sys.executable, "-P", "-m", "amp_rewrite")


def commands(model: Path, target: Path) -> dict[str, list[str]]:
    """Return what is run, by what the table calls it."""
    conversion = [*COMMAND, "convert", str(model), "-o", str(target)]
    peers = [tool for tool in CONVERTERS if tool != "amp_rewrite"]
    return {
        "python -c pass": [sys.executable, "-P", "-c", "pass"],
        "amp-rewrite --version": [*COMMAND, "--version"],
        "amp-rewrite --help": [*COMMAND, "--help"],
        "amp-rewrite convert": conversion,
        **{tool: job(tool, str(model), str(target)) for tool in peers},
    }


def measure(rounds: int) -> list[Row]:
    """Return a row for every command."""
    (model,) = made_models(["small126"])
    with tempfile.TemporaryDirectory() as folder:
        runs: dict[str, Callable[[], Cost]] = {
            name: lambda command=command: run_process(command, 60)
            for name, command in commands(model, Path(folder) / "low.onnx").items()
        }
        costs = interleaved(rounds, runs)
    return [{"process": name, **figures(found)} for name, found in costs.items()]


def main(arguments: list[str]) -> int:
    """Measure, print the table and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    options = parser.parse_args(arguments)
    report("startup", ["startup", *arguments], measure(options.rounds), options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
