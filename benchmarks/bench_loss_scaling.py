"""Measure what loss scaling and the conditional update cost in a float32 step.

    python benchmarks/bench_loss_scaling.py                    MLP, CNN, ResNet, transformer
    python benchmarks/bench_loss_scaling.py mlp --rounds 20    one, more often
    python benchmarks/bench_loss_scaling.py --threads 1

Where the memory of a session happens to lie changes its step time by some per cent, and so do other
programs on the machine. So every kind of update runs in several processes, alone, and in rounds: a
process of each kind, in a random order. The figures are medians over rounds; the last column is
the standard error of the ratio.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench_train import THREADS, network

import amp_rewrite as amp
from amp_rewrite.training.graph.training_graph import value

NETWORKS = ("mlp", "digits_cnn", "resnet", "transformer")
KINDS = ("none", "fixed", "if", "select")
"""Without a loss scale; a fixed one; and the two ways to skip an update of a dynamic one."""
WARM_UP = 10
_SIGMAS = 1.4826
"""Standard deviations in a median absolute deviation, of a normal distribution."""
_OF_MEDIAN = 1.2533
"""Standard error of the median in that of the mean, likewise."""


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


def step_time(name: str, kind: str, threads: int, steps: int) -> float:
    """Return the median step time in milliseconds, measured in this process."""
    running, batch = session(name, kind, threads)
    times: list[float] = []
    with running:
        for number in range(-WARM_UP, steps):
            start = time.perf_counter()
            running.run(batch)
            if number >= 0:
                times.append(time.perf_counter() - start)
    return median(times) * 1e3


def measure(name: str, threads: int, steps: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return kind -> milliseconds of a step, the ratio to no loss scale, and its error.

    Each round runs a process of every kind, so that a busy spell meets all of them; medians over
    rounds count.
    """
    order, shuffled = list(KINDS), random.Random(0)
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        shuffled.shuffle(order)
        for kind in order:
            arguments = [name, "--kind", kind, "--threads", str(threads), "--steps", str(steps)]
            child = [sys.executable, __file__, *arguments]
            done = subprocess.run(child, stdout=subprocess.PIPE, text=True, check=True)
            times[kind].append(float(done.stdout))
    found: dict[str, dict[str, float]] = {}
    for kind, own in times.items():
        ratios = [ms / base for ms, base in zip(own, times[KINDS[0]], strict=True)]
        middle = median(ratios)
        deviation = median(abs(ratio - middle) for ratio in ratios) * _SIGMAS
        error = deviation * _OF_MEDIAN / rounds**0.5
        found[kind] = {"ms": median(own), "ratio": middle, "error": error}
    return found


def main() -> None:
    """Print a line per network and kind."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=", ".join(NETWORKS))
    parser.add_argument("--steps", type=int, default=200, help="steps of each process")
    parser.add_argument("--rounds", type=int, default=10, help="processes of each kind")
    parser.add_argument("--threads", type=int, default=THREADS)
    parser.add_argument("--kind", choices=KINDS, help="measure one, in this process")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    unknown = sorted(set(options.networks) - set(NETWORKS))
    if unknown:
        parser.error(f"no network {', '.join(unknown)}; there are {', '.join(NETWORKS)}")
    if options.kind is not None:
        if len(options.networks) != 1:
            parser.error("--kind measures one network")
        print(step_time(options.networks[0], options.kind, options.threads, options.steps))
        return
    found: dict[str, dict[str, dict[str, float]]] = {}
    print(f"{'network':12} {'update':8} {'ms':>8} {'ratio':>7} {'error':>7}")
    for name in options.networks or NETWORKS:
        found[name] = measure(name, options.threads, options.steps, options.rounds)
        for kind, row in found[name].items():
            print(
                f"{name:12} {kind:8} {row['ms']:8.2f} {row['ratio']:7.3f} {row['error']:7.3f}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
