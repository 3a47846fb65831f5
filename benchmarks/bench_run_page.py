"""Measure what the page of a run costs a training step, and what serving it to many readers does.

    python benchmarks/bench.py run-page
    python benchmarks/bench.py run-page --network mlp --readers 100 --rounds 8

Training goes on in this process, in blocks: without a page; with one that is written every two
seconds; and with `amp-rewrite serve` and readers, which ask for the data every five seconds as an
open page does, in processes of their own. The blocks take turns, so that a busy spell of the
machine meets all of them; medians count. The CPU times are the kernel's account of the training
process and of the server; other programs on the machine change them less than the time that passes.
"""

from __future__ import annotations

import argparse
import http.client
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from bench_train import network

import amp_rewrite as amp
from amp_rewrite.training.graph.training_graph import value

PAUSE = 5.0
"""Seconds between two questions of one reader, as in run_page/static/refresh.js."""
BLOCKS = ("no page", "page", "page and readers")
_TICKS = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """What a step cost in the mean, pages that were written included.

    Attributes:
        wall: Elapsed time, seconds.
        cpu: CPU time of the training process, seconds.
    """

    wall: float
    cpu: float


class Steps(amp.callbacks.Callback):
    """Measures the steps behind the first one until it has enough seconds of them."""

    def __init__(self, seconds: float) -> None:
        """Say how long to go on."""
        self._seconds = seconds
        self._begin = self._end = Cost(0.0, 0.0)
        self._steps = -1

    def on_step(self, run: amp.callbacks.Run) -> None:
        """Look at the clocks."""
        self._steps += 1
        self._end = Cost(time.perf_counter(), time.process_time())
        if not self._steps:
            self._begin = self._end
        elif self._end.wall - self._begin.wall > self._seconds:
            run.stop("measured")

    @property
    def mean(self) -> Cost:
        """The mean step."""
        return Cost(*((e - b) / self._steps for b, e in zip(self._begin, self._end, strict=True)))


def read(port: int, readers: int) -> None:
    """Ask for the data as so many open pages do, until the process is ended."""

    def one() -> None:
        tag = ""
        time.sleep(random.uniform(0, PAUSE))
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", "/runs.json", headers={"If-None-Match": tag})
            answer = connection.getresponse()
            answer.read()
            tag = answer.getheader("ETag") or ""
            connection.close()
            time.sleep(PAUSE)

    threads = [threading.Thread(target=one) for _ in range(readers)]
    for thread in threads:
        thread.start()


@contextmanager
def serving(folder: Path, readers: int, shares: list[float]) -> Generator[None]:
    """Serve a folder to readers; append what share of a core the server took."""
    serve = [sys.executable, "-m", "amp_rewrite", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.search(r":(\d+)/", server.stdout.readline())
        assert found is not None, "the server says where it is"
        asking = [sys.executable, __file__, "--read", found[1], "--readers", str(readers)]
        with subprocess.Popen(asking) as clients:
            time.sleep(PAUSE)  # until all of them have asked once
            begin, used = time.perf_counter(), cpu_seconds(server.pid)
            try:
                yield
            finally:
                wall = time.perf_counter() - begin
                shares.append((cpu_seconds(server.pid) - used) / wall)
                clients.kill()
                server.kill()


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process, as Linux counts it."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def trained(trainer: amp.Trainer, data: Any, callbacks: list[Any], seconds: float) -> Cost:
    """Return the mean step of some seconds of training."""
    steps = Steps(seconds)
    size = len(next(iter(data.values())))
    trainer.train(data, epochs=10**6, batch=size, callbacks=[*callbacks, steps])
    return steps.mean


def measure(name: str, precision: str, readers: int, rounds: int, seconds: float) -> None:
    """Measure and print."""
    proto, batch = network(name)
    optimizer = amp.LossScaleOptimizer(amp.optimizers.Adam(1e-4))
    op = optimizer.minimize(value(amp.load(proto), "loss"))
    data = {k: np.asarray(array) for k, array in batch.items()}
    found: dict[str, list[Cost]] = {block: [] for block in BLOCKS}
    shares: list[float] = []
    with tempfile.TemporaryDirectory() as folder, amp.Trainer(op, precision=precision) as trainer:
        page = Path(folder) / "run.html"
        for number in range(-1, rounds):
            for block in random.sample(BLOCKS, len(BLOCKS)):
                served = block == "page and readers"
                callbacks = [] if block == "no page" else [amp.callbacks.RunPage(page)]
                with serving(Path(folder), readers, shares) if served else nullcontext():
                    step = trained(trainer, data, callbacks, seconds if number >= 0 else 1)
                if number >= 0:  # the first round compiles
                    found[block].append(step)
    print(f"{name}, {precision}, {readers} readers, {rounds} rounds of {seconds:g} s")
    bare = found["no page"]
    for block, steps in found.items():
        wall, cpu = (median(cost) for cost in zip(*steps, strict=True))
        ratios = [(s.wall / b.wall, s.cpu / b.cpu) for s, b in zip(steps, bare, strict=True)]
        more, more_cpu = (median(ratio) - 1 for ratio in zip(*ratios, strict=True))
        print(
            f"{block:18} {1e3 * wall:8.2f} ms a step, {more:+.1%}; "
            f"{1e3 * cpu:8.2f} ms of CPU time, {more_cpu:+.1%}"
        )
    print(f"the server took {median(shares[1:]):.2%} of a core")


def main(arguments: list[str]) -> int:
    """Measure, or be the readers of a measurement."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", default="mlp")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--readers", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--read", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.read is not None:
        read(options.read, options.readers)
        return 0
    warnings.simplefilter("ignore")
    measure(options.network, options.precision, options.readers, options.rounds, options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
