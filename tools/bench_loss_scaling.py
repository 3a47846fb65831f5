"""Measure what loss scaling and the conditional update cost in a float32 step.

    python tools/bench_loss_scaling.py                   MLP 784-1024-10, and the transformer
    python tools/bench_loss_scaling.py mlp --rounds 2000 one, more often
    python tools/bench_loss_scaling.py --threads 1       CPU time: other programs hardly matter

The sessions of one network live in one process and take turns, step by step, so that what else the
machine does meets all of them; the lower quartile of each counts. With one thread it is the CPU
time of the step, with more its wall time.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import quantiles
from typing import Any

from bench_train import THREADS, network

import amp_rewrite as amp
from amp_rewrite.grad.training_graph import value

NETWORKS = ("mlp", "transformer")
KINDS = ("none", "fixed", "if", "select")
"""Without a loss scale; one that is not checked; and the two ways to skip an update."""
WARM_UP = 5


def session(name: str, kind: str, threads: int) -> tuple[amp.TrainingSession, dict[str, Any]]:
    """Return a session of a network without a loss scale, or with one, and a batch."""
    proto, batch = network(name)
    optimizer: Any = amp.optimizers.Adam(1e-3)
    if kind == "fixed":
        optimizer = amp.LossScaleOptimizer(optimizer, 1024.0)
    elif kind != "none":
        optimizer = amp.LossScaleOptimizer(optimizer, "dynamic", conditional=kind)
    op = optimizer.minimize(value(amp.load(proto), "loss"))
    return amp.TrainingSession(op, threads=threads), batch


def measure(name: str, rounds: int, threads: int) -> dict[str, dict[str, float]]:
    """Return kind -> milliseconds of a step, and the ratio to no loss scale."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    made = {kind: session(name, kind, threads) for kind in KINDS}
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(-WARM_UP, rounds):
        for kind, (running, batch) in made.items():
            start = clock()
            running.run(batch)
            elapsed = clock() - start
            if number >= 0:
                times[kind].append(elapsed * 1e3)
    for running, _ in made.values():
        running.close()
    found = {kind: quantiles(t, n=4)[0] for kind, t in times.items()}
    return {kind: {"ms": ms, "ratio": ms / found[KINDS[0]]} for kind, ms in found.items()}


def main() -> None:
    """Print a line per network and kind."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=", ".join(NETWORKS))
    parser.add_argument("--rounds", type=int, default=300, help="steps of each session")
    parser.add_argument("--threads", type=int, default=THREADS)
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    found: dict[str, dict[str, dict[str, float]]] = {}
    print(f"{'network':12} {'update':8} {'ms':>8} {'ratio':>7}")
    for name in options.networks or NETWORKS:
        found[name] = measure(name, options.rounds, options.threads)
        for kind, row in found[name].items():
            print(f"{name:12} {kind:8} {row['ms']:8.2f} {row['ratio']:7.3f}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
