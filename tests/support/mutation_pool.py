"""Runs mutants in a process that may die, and says what became of each."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import mutation_models

WORKER = Path(__file__).with_name("mutation_worker.py")
TIME_LIMIT = 10.0
"""Seconds of processor time that a mutant may take."""

PATIENCE = 120.0
"""Seconds after which a process that says nothing hangs; it has to start first."""

MUTANTS_PER_PROCESS = 2000


@dataclass(frozen=True)
class Outcome:
    """What became of one mutant: "accepted", "refused", "raised", "died" or "hangs"."""

    model: str
    seed: int
    outcome: str
    seconds: float
    trace: str

    @property
    def is_fault(self) -> bool:
        return self.outcome not in ("accepted", "refused") or self.seconds > TIME_LIMIT

    def __str__(self) -> str:
        return f"{self.model} {self.seed}: {self.outcome} after {self.seconds:.1f} s\n{self.trace}"


def outcomes(mutants: Iterable[tuple[str, int]], folder: Path) -> Iterator[Outcome]:
    """Run mutants, pairs of a model's name and a seed; a process that dies or hangs is replaced."""
    mutants = list(mutants)
    for name in {name for name, _ in mutants}:
        content = mutation_models.model(name).SerializeToString()
        (folder / f"{name}.onnx").write_bytes(content)
    yield from outcomes_of(WORKER, mutants, folder)


def outcomes_of(
    program: Path, mutants: Iterable[tuple[str, int]], folder: Path
) -> Iterator[Outcome]:
    """Let a program do one thing after another, each of which has a name and a seed.

    It takes the folder as its argument, and answers as mutation_worker.py does.
    """
    worker: _Worker | None = None
    try:
        for name, seed in mutants:
            if worker is None or worker.count >= MUTANTS_PER_PROCESS:
                if worker is not None:
                    worker.stop()
                worker = _Worker(program, folder)
            outcome = worker.run(name, seed)
            yield outcome
            if outcome.outcome in ("died", "hangs"):
                worker.stop()
                worker = None
    finally:
        if worker is not None:
            worker.stop()


class _Worker:
    """One process."""

    def __init__(self, program: Path, folder: Path) -> None:
        # Threads reserve address space, which is what the worker's memory is measured by.
        alone = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_ARENA_MAX"), "1")
        self._process = subprocess.Popen(
            [sys.executable, str(program), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **alone},
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._errors: list[str] = []
        self._threads = [threading.Thread(target=t, daemon=True) for t in (self._read, self._drain)]
        for thread in self._threads:
            thread.start()
        self.count = 0

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _drain(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line)
            del self._errors[:-60]

    def run(self, name: str, seed: int) -> Outcome:
        assert self._process.stdin is not None
        self.count += 1
        self._process.stdin.write(f"{name} {seed}\n")
        self._process.stdin.flush()
        try:
            line = self._lines.get(timeout=PATIENCE)
        except queue.Empty:
            return Outcome(name, seed, "hangs", PATIENCE, "")
        if line:
            return Outcome(name, seed, **json.loads(line))
        code = self._process.wait()
        self._threads[1].join()
        return Outcome(name, seed, "died", 0.0, f"exit {code}\n" + "".join(self._errors))

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
