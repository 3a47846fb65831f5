"""Measured processes: what one costs, and rounds of several side by side.

Nothing large is imported here or by what starts processes: Linux counts the memory of the parent
into a child's peak.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

THREADS = 2
"""Threads of a model that is timed."""

JOBS = Path(__file__).resolve().parent / "bench_jobs.py"

_LEAST_RUNS, _WARM_RUNS = 7, 3
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Cost:
    """What a process cost, by the kernel's account of it.

    Attributes:
        cpu: User and system time, seconds, imports included.
        wall: Elapsed time, seconds.
        peak: Peak resident memory, MiB.
        output: What it printed.
        error: The end of stderr if it failed, else "".
    """

    cpu: float
    wall: float
    peak: float
    output: str
    error: str


def run_process(command: Sequence[str], timeout: float) -> Cost:
    """Run a command to its end, or for `timeout` seconds."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL)
        timer = threading.Timer(timeout, process.kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        output, lines = out.read(), err.read().strip().splitlines()
    error = lines[-1] if lines else f"ended with {process.returncode}"
    if wall >= timeout:
        error = f"stopped after {timeout:.0f} s"
    cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    return Cost(cpu, wall, peak, output, error if process.returncode else "")


def job(*arguments: str) -> list[str]:
    """Return the command of a job of bench_jobs.py."""
    return [sys.executable, "-P", str(JOBS), *arguments]


def answer(cost: Cost) -> dict[str, Any]:
    """Return the JSON object in the last line that a job printed; what it uses may print before."""
    lines = cost.output.strip().splitlines()
    return {"error": cost.error} if cost.error or not lines else json.loads(lines[-1])


def times_of(run: Callable[[], _Found], seconds: float) -> tuple[_Found, list[float]]:
    """Return what a run returns, and the milliseconds of runs: all of some seconds, or the least.

    Some runs before them are not timed.
    """
    for _ in range(_WARM_RUNS - 1):
        run()
    found = run()
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while len(taken) < _LEAST_RUNS or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        taken.append(1e3 * (time.perf_counter() - start))
    return found, taken


def interleaved(rounds: int, jobs: Mapping[str, Callable[[], Cost]]) -> dict[str, list[Cost]]:
    """Return job -> its costs, one a round; a job that fails is not run again.

    Every round runs every job once, so that a busy spell of the machine meets all of them, and
    the ratios of a round compare what ran side by side.
    """
    costs: dict[str, list[Cost]] = {name: [] for name in jobs}
    for number in range(rounds):
        for name, run in jobs.items():
            if any(cost.error for cost in costs[name]):
                continue
            print(f"round {number + 1}: {name} ...", file=sys.stderr, flush=True)
            costs[name].append(run())
    return costs


def figures(costs: Sequence[Cost]) -> dict[str, Any]:
    """Return what the results keep of the rounds: seconds, MiB, and the error if there is one."""
    return {
        "cpu": [round(cost.cpu, 3) for cost in costs],
        "wall": [round(cost.wall, 3) for cost in costs],
        "peak": [round(cost.peak, 1) for cost in costs],
        "error": costs[-1].error[:120] if costs else "",
    }
