"""Run every check of the project: the one gate, for developers and for CI.

    python tools/check.py                    all steps
    python tools/check.py lint format        some of them
    python tools/check.py tests -- -k casts  what follows `--` goes to pytest

Each step is a subprocess of the interpreter that runs this file, so whatever environment it
belongs to is the one that is checked. All steps run even if one fails; the exit status is 1 if
any did.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# -P keeps the checkout off sys.path: the tests import the installed package, which, unlike the
# checkout, has amp_rewrite.lists in its place.
PYTHON = (sys.executable, "-P")

ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
"""Of the steps. Tests are rewritten by pytest and compiled, 10 s a process unless that is kept."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one step ended.

    Attributes:
        step: The step's name.
        passed: Its exit status was 0.
        seconds: Wall time.
    """

    step: str
    passed: bool
    seconds: float


Command = tuple[str, ...]


def steps(workers: str, slow: bool, pytest_arguments: list[str]) -> dict[str, Command]:
    """Return the command of every step, in the order in which they run."""
    # worksteal: neighbours share fixtures and models that are kept, and stay with one worker
    tests = [*PYTHON, "-m", "pytest", "-q", "-n", workers, "--dist", "worksteal"]
    if not slow:
        tests += ["-m", "not slow"]
    threads = ["--threads", workers] if workers.isdigit() else ["--threads"]
    return {
        "lint": (*PYTHON, "-m", "ruff", "check", "."),
        "format": (*PYTHON, "-m", "ruff", "format", "--check", "."),
        "types": (*PYTHON, "-m", "pyright", "--pythonpath", sys.executable, *threads),
        "lists": (*PYTHON, str(ROOT / "tools" / "check_lists.py")),
        "tests": (*tests, *pytest_arguments),
    }


def run_step(step: str, command: Command) -> Outcome:
    """Run one step with its output on the terminal."""
    print(f"== {step}: {' '.join(command[1:])}", flush=True)
    start = time.perf_counter()
    process = subprocess.run(
        command, cwd=ROOT, env=ENVIRONMENT, check=False, stdin=subprocess.DEVNULL
    )
    status = process.returncode
    return Outcome(step, status == 0, time.perf_counter() - start)


def print_summary(outcomes: list[Outcome]) -> None:
    """Print one line a step."""
    print("== summary")
    for outcome in outcomes:
        print(f"{'ok' if outcome.passed else 'FAILED':7}{outcome.step:8}{outcome.seconds:7.1f} s")


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line; `chosen` are the steps, `pytest` what followed `--`."""
    own, pytest_arguments = arguments, []
    if "--" in arguments:
        cut = arguments.index("--")
        own, pytest_arguments = arguments[:cut], arguments[cut + 1 :]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = list(steps("1", False, []))
    parser.add_argument("chosen", nargs="*", metavar="STEP", help=f"of {', '.join(names)}")
    parser.add_argument("--skip", action="append", default=[], metavar="STEP", choices=names)
    parser.add_argument(
        "--workers", default="2", help="processes of pytest, threads of pyright (default: 2)"
    )
    parser.add_argument("--slow", action="store_true", help="also the tests marked slow")
    options = parser.parse_args(own)
    unknown = sorted({*options.chosen} - {*names})
    if unknown:
        parser.error(f"unknown step {', '.join(unknown)}; steps are {', '.join(names)}")
    options.pytest = pytest_arguments
    return options


def main(arguments: list[str]) -> int:
    """Run the chosen steps; return 1 if any failed."""
    options = parse(arguments)
    commands = steps(options.workers, options.slow, options.pytest)
    chosen = [s for s in commands if s in (options.chosen or commands) and s not in options.skip]
    outcomes = [run_step(step, commands[step]) for step in chosen]
    print_summary(outcomes)
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
