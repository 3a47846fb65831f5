"""Measure training steps against PyTorch eager: same network, weights, batch and threads.

    python benchmarks/bench.py train                     every network
    python benchmarks/bench.py train mlp --rounds 5      one, more often
    python benchmarks/bench.py train --torch-python PYTHON  an interpreter that has torch
    python benchmarks/bench.py train --engines           on OpenVINO too, and PyTorch in bfloat16
    python benchmarks/bench.py train bert_mini --engines --add --json FILE
                                                         the same, network by network; the file
                                                         names the command for all of them
    python benchmarks/bench.py train --profile mlp       what the time of a step goes to
    python benchmarks/bench.py train --build             size and building time of bert-base's step
    python benchmarks/bench.py train --layers 12 24 48   building time of steps of N layers

Every measurement is a process of its own, alternating between the two, so that neither the other's
threads nor its memory are in the figures, which are medians of each process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import train_models
from results import Results, Row, torch_versions
from tables import report

THREADS = 2
SEED = 1
Batch = dict[str, Any]


def images(batch: int, *shape: int) -> Batch:
    """Return random images and labels."""
    rng = np.random.default_rng(SEED)
    x = rng.normal(size=(batch, *shape)).astype(np.float32)
    return {"x": x, "t": rng.integers(0, 10, batch)}


def network(name: str) -> tuple[onnx.ModelProto, Batch]:
    """Return a network and a batch for it."""
    if name == "mlp":
        return train_models.mlp(), images(256, 784)
    if name == "digits_cnn":
        return train_models.digits_cnn(), images(64, 1, 8, 8)
    if name == "resnet":
        return train_models.resnet(), images(32, 3, 32, 32)
    if name == "bert_mini":
        tokens = np.random.default_rng(SEED).integers(0, 30522, (16, 64))
        batch = {"x": tokens, "attention": np.ones(tokens.shape, np.float32), "t": tokens[:, 0] % 2}
        return train_models.bert_base(4, 256, 4, length=64), batch
    numbers, vocabulary = train_models.text()
    batch = train_models.text_batch(numbers, 0, 16, 64)
    return train_models.transformer(len(vocabulary)), batch


NETWORKS: tuple[str, ...] = ("mlp", "digits_cnn", "resnet", "transformer")
OF_ENGINES = (*NETWORKS, "bert_mini")
LOW_OPSET = 22
"""The opset from which Conv takes bfloat16."""


def minimized(name: str) -> tuple[Any, Batch]:
    """Return the TrainOp of a network under Adam, and a batch."""
    import amp_rewrite as amp

    proto, batch = network(name)
    model = amp.load(proto)
    loss = amp.value(model, "loss")
    return amp.optimizers.Adam(1e-3).minimize(loss), batch


def ours(name: str, *, opset: int = train_models.OPSET, **options: Any) -> Callable[[], object]:
    """Return one step of this package; the options are those of the session."""
    from amp_rewrite import TrainingSession

    train_models.OPSET = opset
    train_op, batch = minimized(name)
    session = TrainingSession(train_op, threads=THREADS, **options)
    return lambda: session.run(batch)


def torchs(name: str, *, low: bool = False, compiled: bool = False) -> Callable[[], object]:
    """Return one step of PyTorch, eager or compiled, in float32 or by autocast to bfloat16."""
    import torch  # pyright: ignore[reportMissingImports] it may be another interpreter's
    import train_torch

    torch.set_num_threads(THREADS)
    proto, batch = network(name)
    weights = train_torch.weights_of(proto)
    optimizer = torch.optim.Adam(train_torch.parameters(weights), 1e-3)
    given = [torch.from_numpy(array) for array in batch.values()]
    loss_of = train_torch.LOSSES[name]
    loss_of = torch.compile(loss_of) if compiled else loss_of

    def step() -> float:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            loss = loss_of(weights, *given)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


TOOLS: dict[str, Callable[[str], Callable[[], object]]] = {
    "ours": ours,
    "openvino": partial(ours, providers=["openvino"]),
    "openvino-bfloat16": partial(
        ours, providers=["openvino"], precision="bfloat16", opset=LOW_OPSET
    ),
    "torch": torchs,
    "torch-autocast": partial(torchs, low=True),
    "torch-compile": partial(torchs, compiled=True),
}
"""Tool -> what returns one step of it on a network; PyTorch's run in the interpreter with torch."""
USUAL = ("ours", "torch")
LIMIT = 120
"""Seconds of a process: torch.compile may take minutes for a network."""


def job(tool: str, name: str, seconds: float) -> dict[str, float]:
    """Return the median milliseconds of a step and the process's peak memory in MiB."""
    step = TOOLS[tool](name)
    for _ in range(5):
        step()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"ms": median(times) * 1e3, "peak": peak}


def measure(python: str, tool: str, name: str, seconds: float) -> dict[str, float] | None:
    """Run a job in a process of its own; None if it fails, say for want of torch.

    Raises:
        TimeoutExpired: It did not end in `LIMIT` seconds.
    """
    command = [python, __file__, "--job", tool, "--seconds", str(seconds), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["failed"]
        print(f"{tool} {name}: {lines[-1]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def compare(
    names: list[str], rounds: int, seconds: float, torch_python: str, tools: Sequence[str] = USUAL
) -> list[Row]:
    """Return a row per network and tool, with the figures of every round."""
    pythons = {t: torch_python if t.startswith("torch") else sys.executable for t in tools}
    rows: list[Row] = []
    for name in names:
        own: dict[str, Row] = {
            tool: {"network": name, "tool": tool, "ms": [], "peak": []} for tool in pythons
        }
        for _ in range(rounds):
            for tool, python in pythons.items():
                try:
                    found = None if "stopped" in own[tool] else measure(python, tool, name, seconds)
                except subprocess.TimeoutExpired:
                    found, own[tool]["stopped"] = None, LIMIT
                for figure, value in ({} if found is None else found).items():
                    own[tool][figure].append(round(value, 3))
        rows += own.values()
    return rows


def profile(name: str, steps: int = 20) -> None:
    """Print which operators a step of this package spends its time in."""
    import onnxruntime

    from amp_rewrite import TrainingSession

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.enable_profiling = True
    prefix = Path(tempfile.gettempdir()) / f"bench_train_{os.getpid()}"
    options.profile_file_prefix = str(prefix)
    train_op, batch = minimized(name)
    session = TrainingSession(train_op, options=options)
    for _ in range(steps):
        session.run(batch)
    session.close()  # which writes the profile
    total: dict[str, float] = {}
    for path in prefix.parent.glob(f"{prefix.name}*.json"):
        for event in json.loads(path.read_text()):
            if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
                kind = event["args"]["op_name"]
                total[kind] = total.get(kind, 0.0) + event["dur"] / 1e3 / steps
        path.unlink()
    for kind, ms in sorted(total.items(), key=lambda item: -item[1])[:15]:
        print(f"{kind:28} {ms:8.3f} ms")


def build() -> None:
    """Print the nodes of the step of bert-base, and the seconds that building it takes."""
    import amp_rewrite as amp

    proto = train_models.bert_base()
    print(f"{'optimizer':16} {'forward':>8} {'step':>6} {'ratio':>6} {'seconds':>8}")
    for kind in (amp.optimizers.GradientDescent, amp.optimizers.Adam, amp.optimizers.AdamW):
        start = time.perf_counter()
        model = amp.load(proto)
        nodes = len(model.graph)
        step = amp.build_step(kind(0.001).minimize(amp.value(model, "loss")))
        seconds = time.perf_counter() - start
        count = len(step.graph)
        print(f"{kind.__name__:16} {nodes:8} {count:6} {count / nodes:6.2f} {seconds:8.2f}")


def build_layers(layers: int, precision: str) -> dict[str, float]:
    """Return the CPU seconds from `minimize` to the end of the first step, part by part.

    The layers are narrow, so that time goes to nodes; the first step loads the model.
    """
    import amp_rewrite as amp

    size, length, vocabulary = 64, 16, 100
    proto = train_models.bert_base(layers, size, 2, vocabulary, length)
    optimizer = amp.optimizers.AdamW(1e-3)
    if precision != "float32":
        optimizer = amp.enable_mixed_precision_graph_rewrite(optimizer, precision=precision)
    tokens = np.random.default_rng(SEED).integers(0, vocabulary, (2, length))
    batch = {"x": tokens, "attention": np.ones((2, length), np.float32), "t": tokens[:, 0] % 2}
    loss = amp.value(amp.load(proto), "loss")
    times = [time.process_time()]
    train_op = optimizer.minimize(loss)
    times.append(time.process_time())
    with amp.TrainingSession(train_op, threads=1) as session:
        times.append(time.process_time())
        session.run(batch)
    times.append(time.process_time())
    parts = dict(zip(("minimize", "session", "first step"), np.diff(times).tolist(), strict=True))
    return {**parts, "total": times[-1] - times[0]}


def compare_layers(layers: list[int], rounds: int) -> list[Row]:
    """Return a row per precision and number of layers, with the seconds of every round."""
    kinds = [(precision, count) for precision in ("float32", "float16") for count in layers]
    rows: dict[Any, Row] = {kind: {"precision": kind[0], "layers": kind[1]} for kind in kinds}
    for _ in range(rounds):
        for (precision, count), row in rows.items():
            found = measure(sys.executable, precision, str(count), 0)
            for part, seconds in ({} if found is None else found).items():
                row.setdefault(part, []).append(round(seconds, 3))
    return list(rows.values())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=", ".join(NETWORKS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--torch-python", default=sys.executable, help="an interpreter with torch")
    parser.add_argument("--profile", action="store_true", help="where the time of a step goes")
    parser.add_argument("--build", action="store_true", help="bert-base: nodes, building time")
    parser.add_argument("--layers", type=int, nargs="+", help="building times of steps of N layers")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--add", action="store_true", help="keep the file's other networks")
    parser.add_argument("--tools", nargs="+", choices=TOOLS)
    engines = "six networks, and every tool unless --tools names some"
    parser.add_argument("--engines", action="store_true", help=engines)
    jobs = (*TOOLS, "float32", "float16")
    parser.add_argument("--job", choices=jobs, help=argparse.SUPPRESS)


def train(options: argparse.Namespace) -> None:
    """Run the benchmark."""
    names = options.networks or list(OF_ENGINES if options.engines else NETWORKS)
    if options.job in ("float32", "float16"):
        print(json.dumps(build_layers(int(names[0]), options.job)))
    elif options.job:
        print(json.dumps(job(options.job, names[0], options.seconds)))
    elif options.build:
        build()
    elif options.profile:
        for name in names:
            print(name)
            profile(name)
    else:
        words = ["train", *sys.argv[1:]]
        if options.layers:
            rows = compare_layers(options.layers, options.rounds)
            report("layers", words, rows, options.json)
        else:
            compare_all(names, options, words)


def compare_all(names: list[str], options: argparse.Namespace, words: list[str]) -> None:
    """Print the table, and write the results after each network: measuring all takes minutes."""
    tools = options.tools or list(TOOLS if options.engines else USUAL)
    versions = torch_versions(options.torch_python)
    rows: list[Row] = []
    if options.add and options.json is not None and options.json.exists():
        rows = [row for row in Results.read(options.json).rows if row["network"] not in names]
    for name in names:
        rows += compare([name], options.rounds, options.seconds, options.torch_python, tools)
        rows.sort(key=lambda row: OF_ENGINES.index(row["network"]))
        if options.json is not None:
            Results.of(shlex.join(whole(words, rows)), rows, versions).write(options.json)
    report("train", whole(words, rows), rows, options.json, versions)


def whole(words: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Return the command that measures all rows at once, given the one that measured the last."""
    names = tuple(dict.fromkeys(row["network"] for row in rows))
    options = [word for word in words[1:] if word not in (*OF_ENGINES, "--add")]
    usual = OF_ENGINES if "--engines" in options else NETWORKS
    return [words[0], *([] if names == usual else names), *options]


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    add_arguments(arguments)
    train(arguments.parse_args())
