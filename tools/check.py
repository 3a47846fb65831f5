"""Run every check of the project: the one gate, for developers and for CI.

    python tools/check.py                    all steps
    python tools/check.py lint format        some of them
    python tools/check.py tests -- -k casts  what follows `--` goes to pytest
    python tools/check.py changed            what a change calls for, in two minutes

`changed` checks the types of the files that git finds changed, since this branch left origin/main
or since --base REV, and runs the tests of their folders and of what imports them directly; it says
what it leaves out (tools/changed.py).

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
sys.path.insert(0, str(ROOT / "tools"))

from changed import changed_files, choose  # noqa: E402 from the folder above

# -P keeps the checkout off sys.path: the tests import the installed package, which, unlike the
# checkout, has amp_rewrite.lists in its place.
PYTHON = (sys.executable, "-P")
CHANGED = "changed"

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


def narrowed(commands: dict[str, Command], files: list[str]) -> dict[str, Command]:
    """Return the steps that changed files call for, about these files; say what is left out."""
    choice = choose(ROOT, files)
    print(f"== changed: {len(files)} files", *files, sep="\n   ")
    if choice.left_out:
        print("== left out, which `python tools/check.py` runs:", *choice.left_out, sep="\n   ")
    typed = [name for name in files if name.endswith(".py") and (ROOT / name).exists()]
    lists = [name for name in files if name.startswith(("lists/", "amp_rewrite/oplists/"))]
    found = {"lint": commands["lint"], "format": commands["format"]}
    if typed:
        found["types"] = (*commands["types"], *typed)
    if lists:
        found["lists"] = commands["lists"]
    if choice.tests:
        found["tests"] = (*commands["tests"], *choice.tests)
    return found


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
    parser.add_argument(
        "chosen", nargs="*", metavar="STEP", help=f"{CHANGED}, or of {', '.join(names)}"
    )
    parser.add_argument("--base", metavar="REV", help=f"{CHANGED}: since this revision")
    parser.add_argument("--skip", action="append", default=[], metavar="STEP", choices=names)
    parser.add_argument(
        "--workers", default="2", help="processes of pytest, threads of pyright (default: 2)"
    )
    parser.add_argument("--slow", action="store_true", help="also the tests marked slow")
    options = parser.parse_args(own)
    if CHANGED in options.chosen and len(options.chosen) > 1:
        parser.error(f"{CHANGED} chooses the steps itself: leave some out with --skip")
    if options.base is not None and CHANGED not in options.chosen:
        parser.error(f"--base is for {CHANGED}")
    unknown = sorted({*options.chosen} - {*names, CHANGED})
    if unknown:
        parser.error(f"unknown step {', '.join(unknown)}; steps are {', '.join(names)}")
    options.pytest = pytest_arguments
    return options


def main(arguments: list[str]) -> int:
    """Run the chosen steps; return 1 if any failed."""
    options = parse(arguments)
    commands = steps(options.workers, options.slow, options.pytest)
    if options.chosen == [CHANGED]:
        commands = narrowed(commands, changed_files(ROOT, options.base))
        options.chosen = []
    chosen = [s for s in commands if s in (options.chosen or commands) and s not in options.skip]
    outcomes = [run_step(step, commands[step]) for step in chosen]
    print_summary(outcomes)
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
