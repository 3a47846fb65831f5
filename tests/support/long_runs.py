"""Long runs in a process of their own; prints what it held after a part of them, and at the end.

    python long_runs.py steps|sessions COUNT

Each is done in the ways that users do: with a loss scale, evaluation and checkpoints between.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from handmade import CLASSIFIER, model_of
from resources import held

import amp_rewrite as amp

WARM = 5
"""What is done before counting begins: one part in so many."""


def classes(seed: int) -> dict[str, Any]:
    """Return a batch for the classifier."""
    x = np.random.default_rng(seed).normal(size=(16, 4)).astype(np.float32)
    return {"x": x, "t": x[:, :3].argmax(-1)}


def step() -> amp.optimizers.TrainOp:
    """Return a step with slots, a schedule and a loss scale."""
    rule = amp.optimizers.Adam(amp.optimizers.CosineSchedule(1e-3, 10_000))
    scaled = amp.LossScaleOptimizer(rule, amp.DynamicLossScale())
    return scaled.minimize(amp.value(model_of(CLASSIFIER), "loss"))


def steps(count: int, folder: Path) -> Callable[[int], None]:
    """Return what does one step of a session, with a checkpoint now and then."""
    session = amp.TrainingSession(step(), precision="float16", emulate=True)
    every = max(1, count // 50)

    def one(index: int) -> None:
        session.run(classes(index % 7))
        if index % every == 0:
            session.evaluate(classes(1))
            session.save(folder / "c.safetensors")
            session.restore(folder / "c.safetensors")

    return one


def sessions(count: int, folder: Path) -> Callable[[int], None]:
    """Return what opens a session, trains and closes it."""
    path = folder / "step.onnx"
    amp.save(amp.build_step(step(), precision="float16"), path)

    def one(index: int) -> None:
        with amp.TrainingSession(path, emulate=True) as session:
            session.run(classes(index % 7))
            session.evaluate(classes(1))

    return one


def main() -> None:
    """Do it, and print what was held."""
    kind, number = sys.argv[1:]
    count = int(number)
    with tempfile.TemporaryDirectory() as folder:
        one = {"steps": steps, "sessions": sessions}[kind](count, Path(folder))
        for index in range(count // WARM):
            one(index)
        before = held()
        for index in range(count // WARM, count):
            one(index)
        sys.stdout.write(json.dumps([asdict(before), asdict(held())]))


if __name__ == "__main__":
    main()
