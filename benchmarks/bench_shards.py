"""Measure training on several shards: steps, what the sums take, and how that would scale.

    python benchmarks/bench_shards.py                         the MLP and the transformer, 2 shards
    python benchmarks/bench_shards.py mlp --rounds 5          one of them, more often
    python benchmarks/bench_shards.py --shards 4              more shards
    python benchmarks/bench_shards.py --json shards.json      the figures as JSON

A step of one process with all threads, of one process with a shard's threads, and of the shards
at the same global batch are measured in turn, each in processes of its own; the shortest step of
all rounds counts, since whatever else the machine does makes steps longer only. Then the time of
sums of many sizes is measured, and a model of latency and bandwidth fitted to it, from which a
table of up to 1,024 shards is projected. It is a projection: nothing of it was run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bench_train import network

NETWORKS = ("mlp", "transformer")
SIZES = tuple(4**i * 256 for i in range(9))  # bytes: 256 B to 16 MiB
PROJECTED = (2, 8, 64, 256, 1024)


class Watched:
    """A collective whose sums are timed; everything else is the engine's.

    Attributes:
        blocked: Seconds in which this process did nothing but wait for sums.
    """

    def __init__(self, inner: Any) -> None:
        """Watch an engine."""
        self.inner, self.blocked = inner, 0.0

    def __getattr__(self, name: str) -> Any:
        """Return a member of the engine."""
        return getattr(self.inner, name)

    def sum(self, buffer: Any) -> None:
        """Sum a buffer."""
        start = time.perf_counter()
        self.inner.sum(buffer)
        self.blocked += time.perf_counter() - start


def train_op(name: str) -> tuple[Any, dict[str, Any], int]:
    """Return a step for shards under Adam, a global batch, and the bytes of its gradients."""
    import amp_rewrite as amp

    proto, batch = network(name)
    with amp.distributed.shard_context():
        optimizer = amp.CrossShardOptimizer(amp.optimizers.Adam(1e-3))
        op = optimizer.minimize(amp.value(amp.load(proto), "loss"))
    size = sum(v.read().nbytes for v in op.graph.variables())
    return op, batch, size


def shortest_ms(step: Callable[[], object], seconds: float) -> float:
    """Return the milliseconds of the shortest step, which other processes disturbed least."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def alone(name: str, threads: int, seconds: float, share: int = 1) -> dict[str, float]:
    """Return the time of a step of one process, with a part of the global batch."""
    from amp_rewrite import TrainingSession

    op, batch, size = train_op(name)
    part = {key: a[: len(a) // share] for key, a in batch.items()}
    with TrainingSession(op, threads=threads) as session:
        for _ in range(5):
            session.run(part)
        return {"ms": shortest_ms(lambda: session.run(part), seconds), "bytes": size}


def together(name: str, steps: int) -> dict[str, float]:
    """Return the time of a step of the shards, and how much of it is waiting for sums."""
    import amp_rewrite as amp

    op, batch, size = train_op(name)
    with amp.distributed.mpi() as shards:
        watched = Watched(shards.collective)
        own = amp.distributed.Shards(watched)  # pyright: ignore[reportArgumentType] it has the members
        part = shards.part(batch)
        with amp.TrainingSession(op, shards=own) as session:
            found: list[tuple[float, float]] = []
            for _ in range(steps):
                watched.blocked, start = 0.0, time.perf_counter()
                session.run(part)
                found.append((time.perf_counter() - start, watched.blocked))
    shortest, waited = min(found)
    figures = {"ms": shortest * 1e3, "sums": waited * 1e3, "bytes": size}
    return figures if shards.is_first else {}


def sums(repeats: int) -> dict[str, float]:
    """Return size in bytes -> the shortest seconds of a sum."""
    import amp_rewrite as amp

    found: dict[str, float] = {}
    with amp.distributed.mpi() as shards:
        for size in SIZES:
            buffer = np.zeros(size // 4, np.float32)
            times: list[float] = []
            for _ in range(repeats):
                shards.collective.gather(np.zeros(1))  # all begin together
                start = time.perf_counter()
                shards.collective.sum(buffer)
                times.append(time.perf_counter() - start)
            found[str(size)] = min(times)
    return found if shards.is_first else {}


def fit(measured: dict[int, float], shards: int) -> tuple[float, float]:
    """Return latency (s) and bandwidth (bytes/s) of the model below, by relative least squares.

    t(p, n) = 2 log2(p) latency + 2 (p - 1) / p n / bandwidth: the reduce-scatter and all-gather of
    R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in
    MPICH", 2005, with the time of additions inside the bandwidth.
    """
    sizes, times = np.array(list(measured)), np.array(list(measured.values()))
    terms = np.stack(
        [np.full(len(sizes), 2 * np.log2(shards)), 2 * (shards - 1) / shards * sizes], axis=1
    )
    latency, slope = np.linalg.lstsq(terms / times[:, None], np.ones(len(times)), rcond=None)[0]
    return float(latency), 1 / float(slope)


def predicted(size: float, shards: int, latency: float, bandwidth: float) -> float:
    """Return the seconds of a sum; see `fit`."""
    return 2 * np.log2(shards) * latency + 2 * (shards - 1) / shards * size / bandwidth


def run(*words: object, shards: int = 0) -> Any:
    """Run a job in processes of its own; return what the first prints as JSON."""
    command = [sys.executable, __file__, *map(str, words)]
    if shards:
        folder = Path(sys.executable).parent
        found = shutil.which("mpiexec", path=f"{folder}{os.pathsep}{os.environ['PATH']}")
        if found is None:
            raise SystemExit("mpiexec was not found: pip install '.[mpi]'")
        command = [found, "-n", str(shards), *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[0])


def best(found: list[dict[str, float]]) -> dict[str, float]:
    """Return the round with the shortest step."""
    return min(found, key=lambda round_: round_["ms"])


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of a network."""
    cores, shards = len(os.sched_getaffinity(0)), options.shards
    kinds: dict[str, list[dict[str, float]]] = {"all": [], "one": [], "part": [], "shards": []}
    share = max(1, cores // shards)
    for _ in range(options.rounds):
        seconds = ("--seconds", options.seconds)
        kinds["all"].append(run("--job", "alone", name, "--threads", cores, *seconds))
        kinds["shards"].append(run("--job", "together", name, "--steps", 60, shards=shards))
        kinds["one"].append(run("--job", "alone", name, "--threads", share, *seconds))
        kinds["part"].append(
            run("--job", "alone", name, "--threads", share, "--share", shards, *seconds)
        )
    return {kind: best(rounds) for kind, rounds in kinds.items()}


def report(figures: dict[str, Any], shards: int) -> None:
    """Print the figures and the projection."""
    kinds = ("1, all threads", "1, a share", "part of batch", f"{shards} shards", "of it sums")
    print(f"{'network':12} {'gradients':>10} " + " ".join(f"{kind:>14}" for kind in kinds))
    for name, found in figures["steps"].items():
        step = found["shards"]
        times = [*(found[kind]["ms"] for kind in ("all", "one", "part")), step["ms"], step["sums"]]
        columns = " ".join(f"{ms:11.2f} ms" for ms in times)
        print(f"{name:12} {step['bytes'] / 1e6:7.2f} MB {columns} {step['sums'] / step['ms']:.0%}")
    latency, bandwidth = figures["latency"], figures["bandwidth"]
    print(f"fitted: latency {latency * 1e6:.1f} us, bandwidth {bandwidth / 1e9:.2f} GB/s")
    print("projected efficiency at the same batch on each shard: " + ", ".join(map(str, PROJECTED)))
    for name, found in figures["steps"].items():
        part, size = found["part"]["ms"], found["shards"]["bytes"]
        times = [predicted(size, p, latency, bandwidth) * 1e3 for p in PROJECTED]
        print(f"{name:12} " + ", ".join(f"{part / (part + t):.1%}" for t in times))


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("networks", nargs="*", default=NETWORKS, help=" ".join(NETWORKS))
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--json", type=Path)
    for name in ("--job", "--threads", "--share", "--steps"):
        parser.add_argument(name, type=str if name == "--job" else int, default=1)
    options = parser.parse_args()
    jobs: dict[str, Callable[[], Any]] = {
        "alone": lambda: alone(
            options.networks[0], options.threads, options.seconds, options.share
        ),
        "together": lambda: together(options.networks[0], options.steps),
        "sums": lambda: sums(options.steps),
    }
    if options.job in jobs:
        found = jobs[options.job]()
        if found:
            print(json.dumps(found))
        return
    figures: dict[str, Any] = {"steps": {n: measure(n, options) for n in options.networks}}
    rounds = [run("--job", "sums", "--steps", 200, shards=options.shards) for _ in range(3)]
    measured = {size: min(r[str(size)] for r in rounds) for size in SIZES}
    figures["sums"] = measured
    figures["latency"], figures["bandwidth"] = fit(measured, options.shards)
    report(figures, options.shards)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
