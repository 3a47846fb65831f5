"""Change lines of the package at random and say which changes no test notices.

    python tools/mutation/mutate.py        20 mutants of each file or folder of PARTS
    python tools/mutation/mutate.py amp_rewrite/values --number 50 --seed 3

Takes files and folders of the package, draws mutants of each with cosmic-ray's operators, and runs
the fast tests that bear the file's name and come past the changed line; where these notice nothing,
those of its folder and of behaviour (tools/changed.py). A mutant has --seconds of processor time,
each time. Prints what survives, and a table; the exit status is 1 if more than --most of them do.
What equivalent.txt names computes the same: it is drawn and not tried.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tools" / "mutation")]

from changed import PACKAGE, own_tests  # noqa: E402 from the folder above
from mutants import Mutant, sample  # noqa: E402 from the folder above
from trials import (  # noqa: E402 from the folder above
    ARGUMENTS,
    KILLED,
    SURVIVED,
    UNREACHED,
    Trace,
    Trials,
    answer_of_fork,
    try_anew,
)

PARTS = (
    "amp_rewrite/rewriting/paint/passes",
    "amp_rewrite/values",
    "amp_rewrite/grad/rules",
    "amp_rewrite/training/optimizers/clipping.py",
    "amp_rewrite/numerics/compare/verify_report.py",
)
_BEHAVIOUR = {"rewriting": ("tests/conformance",), "values": ("tests/conformance",)}
"""Room -> tests that bear the name of no file."""

EQUIVALENT = "equivalent"
_UNNOTICED = (SURVIVED, UNREACHED)
KNOWN = Path(__file__).with_name("equivalent.txt")
"""Pairs of lines: what stands there and what computes the same; then an empty one."""

_HEAVY = (
    "numpy",
    "ml_dtypes",
    "onnx",
    "onnx_ir",
    "onnxruntime",
    "networkx",
)
"""What all processes import: it is imported before they are forked."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant."""

    mutant: Mutant
    outcome: str


def equivalents() -> set[tuple[str, str]]:
    """Return the pairs of text, before and after, that are known to compute the same."""
    blocks = KNOWN.read_text("utf-8").split("\n\n")
    rows = [[line for line in b.splitlines() if not line.startswith("#")] for b in blocks]
    return {(row[0], row[1]) for row in rows if row}


def tests_of(path: str, wide: bool) -> list[str]:
    """Return the tests of a file: those that bear its name, or without these its folder's.

    If wide, those of its folder, and those of behaviour.
    """
    inside = Path(path).relative_to(PACKAGE)
    own = Path("tests", inside).with_name(f"test_{inside.name}")
    if (ROOT / own).exists() and not wide:
        return [str(own)]
    more = _BEHAVIOUR.get(inside.parts[0], ()) if wide else ()
    return [test for test in (*own_tests(ROOT, path), *more) if (ROOT / test).exists()]


def try_part(part: str, number: int, seed: int, seconds: float) -> list[Verdict]:
    """Return what becomes of mutants of a file or folder.

    To be called in a process that has not imported the package. The arguments are options of the
    command line.
    """
    files = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / part).rglob("*.py"))]
    drawn, known = sample(ROOT, files or [part], number, seed), equivalents()
    mutants = [mutant for mutant in drawn if (mutant.before, mutant.after) not in known]
    outcomes = dict.fromkeys(drawn, EQUIVALENT) | try_mutants(mutants, seconds, wide=False)
    unnoticed = [mutant for mutant in mutants if outcomes[mutant] in _UNNOTICED]
    outcomes |= try_mutants(unnoticed, seconds, wide=True)
    for mutant, outcome in outcomes.items():
        if outcome in _UNNOTICED:
            print(f"{mutant}  ({outcome})", flush=True)
    return [Verdict(*item) for item in outcomes.items()]


def try_mutants(mutants: Sequence[Mutant], seconds: float, wide: bool) -> dict[Mutant, str]:
    """Return what becomes of mutants by the tests of their files, wide or not."""
    traced = {str(ROOT / mutant.path) for mutant in mutants}
    tests = list(dict.fromkeys(test for mutant in mutants for test in tests_of(mutant.path, wide)))
    if not mutants:
        return {}

    def collect() -> tuple[Trace, list[str | None]]:
        trials = Trials(traced, mutants, ROOT, seconds)
        trials.begin()
        pytest = import_module("pytest")
        pytest.main([*ARGUMENTS, *tests], plugins=[trials])
        return trials.trace, trials.results

    trace, results = answer_of_fork(collect, 36000.0, loud=True) or (Trace(), [])
    if len(results) != len(mutants):
        raise SystemExit(f"the tests cannot be collected: {' '.join(tests)}")
    return {
        mutant: result or try_anew(mutant, str(ROOT / mutant.path), trace, seconds)
        for mutant, result in zip(mutants, results, strict=True)
    }


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PATH", default=PARTS)
    parser.add_argument("--number", type=int, default=20, help="mutants of each path")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0, help="of tests, for each mutant")
    parser.add_argument("--most", type=float, default=0.1, help="share that may survive")
    options = parser.parse_args(arguments)
    for part in options.parts:
        if not part.startswith(f"{PACKAGE}/") or not (ROOT / part).exists():
            parser.error(f"{part} is no file or folder of {PACKAGE}, from the top of the checkout")
    return options


def main(arguments: list[str]) -> int:
    """Try mutants; return 1 if too many survive."""
    options = parse(arguments)
    for name in _HEAVY:
        import_module(name)
    os.chdir(ROOT)
    os.environ["CI"] = "true"  # the tests draw the same numbers in each process
    row = "{:48}{:>9}{:>9}{:>10}{:>12}"
    lines = [row.format("", "mutants", KILLED, SURVIVED, EQUIVALENT)]
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = os.environ["TMPDIR"] = folder
        tempfile.tempdir = None
        for part in options.parts:
            verdicts = try_part(part, options.number, options.seed, options.seconds)
            counts = Counter(verdict.outcome for verdict in verdicts)
            counts[SURVIVED] += counts.pop(UNREACHED, 0)
            total += counts
            numbers = (counts[name] for name in (KILLED, SURVIVED, EQUIVALENT))
            lines.append(row.format(part, len(verdicts), *numbers))
    numbers = (total[name] for name in (KILLED, SURVIVED, EQUIVALENT))
    lines.append(row.format("all", total.total(), *numbers))
    print(*lines, sep="\n")
    return total[SURVIVED] > options.most * total.total()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
