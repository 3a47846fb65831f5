"""Runs for tests of their pages: trained ones, and data of made-up ones."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from handmade import CLASSIFIER
from onnx import parser

import amp_rewrite as amp
from amp_rewrite.loop.run_page.run_data import RUNNING, VERSION

LENGTH = 40


def examples(count: int = LENGTH, seed: int = 0) -> dict[str, Any]:
    """Return examples for the step of `trained`."""
    rng = np.random.default_rng(seed)
    t = rng.integers(0, 3, count)
    x = (rng.normal(size=(count, 4)) + t[:, None]).astype(np.float32)
    return {"x": x, "t": t}


def step(**how: Any) -> Any:
    """Return a classifier's step with a loss scale."""
    model = amp.load(parser.parse_model(CLASSIFIER))
    optimizer = amp.LossScaleOptimizer(amp.optimizers.Adam(0.01))
    return optimizer.minimize(amp.value(model, "loss"), **how)


def trained(
    page: Path, data: dict[str, Any] | None = None, *, precision: str = "float16", **options: Any
) -> amp.callbacks.RunPage:
    """Train in low precision with a page; return the callback that wrote it."""
    callback = amp.callbacks.RunPage(page, every=0)
    callback.patience = 0
    given = {"epochs": 2, "batch": 8, "eval": examples(12, 1), **options}
    with amp.Trainer(step(), precision=precision, emulate=precision != "float32") as trainer:
        trainer.train(
            examples() if data is None else data,
            **{**given, "callbacks": [callback, *options.get("callbacks", ())]},
        )
    return callback


def made_up(
    title: str = "a", state: str = RUNNING, steps: int = 20, **other: Any
) -> dict[str, Any]:
    """Return the data of a run that was never trained."""
    count = range(1, steps + 1)
    columns = {
        "step": list(count),
        "seconds": [n / 10 for n in count],
        "loss": [3 * math.exp(-n / 8) + len(title) / 50 for n in count],
        "loss_scale": [2.0 ** (15 - n // 7) for n in count],
        "skipped": [int(n % 7 == 0) for n in count],
        "learning_rate": [0.001 for _ in count],
        "gradient_norm": [None if n % 7 == 0 else 10 / n for n in count],
        "throughput": [None if n == 1 else 300 + n for n in count],
        "zero": [0.3 for _ in count],
        "small": [n / 1000 for n in count],
    }
    layers = {"variable": [f"w{k}" for k in range(50)], "zero": [0.3] * 50, "small": [0.1] * 50}
    return {
        "version": VERSION,
        "tool": "amp-rewrite 0",
        "title": title,
        "state": state,
        "reason": "",
        "written": time.time(),
        "every": 0.2,
        "epoch": 1,
        "epochs": 3,
        "step": steps,
        "precision": "float16",
        "accumulate": 1,
        "settings": {"precision": "float16", "batch": 8, "learning rate": 0.001},
        "missing": [],
        "width": 1,
        "curves": columns,
        "evaluations": {"step": [10, 20], "eval_loss": [1.0, 0.5], "eval_accuracy": [0.5, 0.8]},
        "layers": {**layers, "most": [k / 100 for k in range(50)]},
        **other,
    }
