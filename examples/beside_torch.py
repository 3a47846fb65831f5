"""How a recipe trains, here and in PyTorch, and what it prints of both."""

# PyTorch is optional, and not there where types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from recipe_data import Batch

import amp_rewrite as amp

LAST = 10
"""Steps over whose losses the end of a curve is averaged."""


@dataclass(frozen=True)
class Run:
    """What came of a training.

    Attributes:
        losses: Of every update.
        seconds: Of processor time for a batch, the median.
        held_out: The loss on examples that it was not trained with.
        accuracy: The share of them that it recognises.
    """

    losses: list[float]
    seconds: float
    held_out: float
    accuracy: float

    def __str__(self) -> str:
        """Tell it in one line."""
        return (
            f"loss {self.losses[0]:.4f} to {np.mean(self.losses[-LAST:]):.4f}, "
            f"held out {self.held_out:.4f}, accuracy {self.accuracy:.2%}, "
            f"{1000 * self.seconds:.2f} ms of processor time a batch"
        )


def options(description: str | None, steps: int) -> argparse.Namespace:
    """Return the options that every recipe has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--precision", choices=("float32", "float16"), default="float32")
    parser.add_argument("--steps", type=int, default=steps)
    return parser.parse_args()


def train(
    train_op: amp.optimizers.TrainOp,
    batches: Iterable[Batch],
    held_out: Batch,
    *,
    precision: str,
    accumulate: int = 1,
) -> Run:
    """Train here, on one core; float16 is emulated on a CPU."""
    low = precision != "float32"
    with amp.TrainingSession(train_op, threads=1, emulate=low) as session:
        found, times = list[float](), [time.process_time()]
        for batch in batches:
            found.append(float(session.run(batch, "loss")["loss"]))
            times.append(time.process_time())
        after = session.evaluate(held_out, ["loss", "logits"])
    accuracy = _accuracy(after["logits"], held_out)
    return Run(*_summary(found, times, accumulate), float(after["loss"]), accuracy)


def train_in_torch(
    network: Any,
    optimizer: Any,
    batches: Iterable[Batch],
    held_out: Batch,
    *,
    schedule: Any = None,
    accumulate: int = 1,
    low: bool = False,
) -> Run:
    """Train with PyTorch, on one core, in float32 or by its autocast to bfloat16."""
    import torch
    from torch.nn import functional

    def outcome(batch: Batch) -> tuple[Any, Any]:
        *inputs, labels = (torch.from_numpy(array) for array in batch.values())
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            logits = network(*inputs)
            return functional.cross_entropy(logits, labels), logits.float()

    torch.set_num_threads(1)
    found, times = list[float](), [time.process_time()]
    for number, batch in enumerate(batches, 1):
        loss = outcome(batch)[0]
        (loss / accumulate).backward()
        found.append(loss.item())
        if number % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
            if schedule is not None:
                schedule.step()
        times.append(time.process_time())
    with torch.no_grad():
        loss, logits = outcome(held_out)
    accuracy = _accuracy(logits.numpy(), held_out)
    return Run(*_summary(found, times, accumulate), loss.item(), accuracy)


def report(ours: Run, in_torch: Callable[[], Run]) -> None:
    """Print what came of a training, beside what comes of it in PyTorch where that is installed."""
    print(f"amp-rewrite: {ours}")
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed: nothing to compare with")
        return
    theirs = in_torch()
    print(f"PyTorch:     {theirs}")
    far = np.max(np.abs(np.array(ours.losses) / theirs.losses - 1))
    after = abs(ours.held_out / theirs.held_out - 1)
    print(
        f"apart by at most {far:.4%} of the loss of a step, {after:.4%} of that held out; "
        f"PyTorch's time by ours: {theirs.seconds / ours.seconds:.2f}"
    )


def _summary(losses: list[float], times: list[float], every: int) -> tuple[list[float], float]:
    """Return the mean losses of updates, and how long a batch takes."""
    return np.reshape(losses, (-1, every)).mean(1).tolist(), float(np.median(np.diff(times)))


def _accuracy(logits: Any, batch: Batch) -> float:
    return float((logits.argmax(1) == batch["t"]).mean())
