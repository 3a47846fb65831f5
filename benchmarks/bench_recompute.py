"""Measure the memory and the time of steps that compute values again instead of keeping them.

    python benchmarks/bench.py recompute

A transformer is trained for a few steps with Adam, each choice in a process of its own. Activations
are what the largest resident memory of the process has grown by since the step was built and
loaded; the gradients and the temporary values of the updates are part of that.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import train_models

import amp_rewrite as amp

CHOICES = ("none", "lean", "every block", "every 2 blocks", "every 4 blocks")
"""What is computed again; "lean" is nothing, with the session options that the others get."""

_STEPS = 3
_VOCABULARY, _HEADS = 64, 4


def step_of(which: str, layers: int, size: int, length: int) -> amp.optimizers.TrainOp:
    """Return the step of a transformer."""
    proto = train_models.transformer(_VOCABULARY, length, size, _HEADS, layers)
    recompute = which if which.startswith("every") else None
    loss = amp.value(amp.load(proto), "loss")
    return amp.optimizers.Adam(1e-3).minimize(loss, recompute=recompute)


def resident(key: str) -> float:
    """Return a figure of this process in MiB: "VmRSS", or "VmHWM" for the largest so far."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) / 1024


def measure(which: str, layers: int, size: int, length: int, batch: int) -> dict[str, float]:
    """Return what a few steps need: MiB of activations, milliseconds of a step, the last loss."""
    from amp_rewrite.runtimes.ort.sessions import session_options

    random = np.random.default_rng(0)
    feeds = {name: random.integers(0, _VOCABULARY, (batch, length)) for name in ("x", "t")}
    options = session_options(memory_patterns=False, lean=True) if which == "lean" else None
    op = step_of(which, layers, size, length)
    with amp.TrainingSession(op, options=options) as session:
        session.run({name: array[:1] for name, array in feeds.items()})  # loads the step
        before = resident("VmRSS")
        times, losses = list[float](), list[float]()
        for _ in range(_STEPS):
            start = time.perf_counter()
            losses.append(float(session.run(feeds)["loss"]))
            times.append(time.perf_counter() - start)
    return {"MiB": resident("VmHWM") - before, "ms": 1000 * min(times), "loss": losses[-1]}


def main() -> int:
    """Measure each choice in a process of its own and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("layers", 12), ("size", 128), ("length", 128), ("batch", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--only", choices=CHOICES, help="measure one, and print JSON")
    given = parser.parse_args()
    shape = given.layers, given.size, given.length, given.batch
    if given.only:
        print(json.dumps(measure(given.only, *shape)))
        return 0
    print("| recompute | activations | step | loss after three steps |\n|---|---|---|---|")
    for which in CHOICES:
        command = [sys.executable, __file__, "--only", which]
        for name, value in zip(("layers", "size", "length", "batch"), shape, strict=True):
            command += [f"--{name}", str(value)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        print(f"| {which} | {found['MiB']:.0f} MiB | {found['ms']:.0f} ms | {found['loss']:.5f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
