"""Measure what loss scaling and the conditional update cost in a float32 step.

    python tools/bench_loss_scaling.py                   MLP 784-1024-10, and the transformer
    python tools/bench_loss_scaling.py mlp --rounds 50   one, more often

The sessions of one network live in one process and take turns, step by step, so that what else the
machine does meets all of them; the fastest step of each counts, and the median of the ratios of
neighbours is beside it.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench_train import THREADS, network

import amp_rewrite as amp
from amp_rewrite.grad.training_graph import value

NETWORKS = ("mlp", "transformer")
KINDS = ("none", "fixed", "if", "select")


def session(name: str, kind: str) -> tuple[amp.TrainingSession, dict[str, Any]]:
    """Return a session of a network without a loss scale, or with one, and a batch."""
    proto, batch = network(name)
    optimizer: Any = amp.optimizers.Adam(1e-3)
    if kind == "fixed":
        optimizer = amp.LossScaleOptimizer(optimizer, 1024.0)
    elif kind != "none":
        optimizer = amp.LossScaleOptimizer(optimizer, "dynamic", conditional=kind)
    op = optimizer.minimize(value(amp.load(proto), "loss"))
    return amp.TrainingSession(op, threads=THREADS), batch


def measure(name: str, rounds: int, kinds: tuple[str, ...] = KINDS) -> dict[str, dict[str, float]]:
    """Return kind -> milliseconds of the fastest step, and its ratio to that without a scale."""
    made = {kind: session(name, kind) for kind in kinds}
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(-3, rounds):
        for kind, (running, batch) in made.items():
            start = time.perf_counter()
            running.run(batch)
            elapsed = time.perf_counter() - start
            if number >= 0:
                times[kind].append(elapsed * 1e3)
    for running, _ in made.values():
        running.close()
    base = times[kinds[0]]
    return {
        kind: {
            "ms": min(found),
            "ratio": min(found) / min(base),
            "median_ratio": median(a / b for a, b in zip(found, base, strict=True)),
        }
        for kind, found in times.items()
    }


def main() -> None:
    """Print a line per network and kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=", ".join(NETWORKS))
    parser.add_argument("--rounds", type=int, default=60, help="steps of each session")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    found = {name: measure(name, options.rounds) for name in options.networks or NETWORKS}
    print(f"{'network':12} {'update':8} {'ms':>8} {'ratio':>7} {'median':>7}")
    for name, rows in found.items():
        for kind, row in rows.items():
            figures = f"{row['ms']:8.2f} {row['ratio']:7.3f} {row['median_ratio']:7.3f}"
            print(f"{name:12} {kind:8} {figures}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
