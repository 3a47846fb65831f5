"""Whether bfloat16 on OpenVINO learns what float32 learns there, from the same batches.

    python benchmarks/bench.py convergence [digits_mlp digits_cnn resnet bert underflow]

trains two networks on scikit-learn's digits from several seeds, and the networks of the three
recipes of `examples/`. All that OpenVINO takes is low, whether it pays or not. Where this Python
has torch, PyTorch's autocast to bfloat16 trains them from the same weights and batches, too.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import train_models
import underflow
from numpy.typing import NDArray
from results import Row, torch_versions
from tables import report

import amp_rewrite as amp

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
ENGINE = TARGET = "openvino"
PRECISIONS = ("float32", "bfloat16")
AUTOCAST = "autocast"
"""In the place of a precision: PyTorch's, with bfloat16."""
EPOCHS, SIZE = 12, 64
WINDOW = 10
"""Steps over which the losses of a curve are averaged before curves are compared."""
LOW_OPSET = 22
"""The opset from which Conv takes bfloat16."""

Batch = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """What came of a training.

    Attributes:
        losses: Of every step.
        accuracy: The share of the examples held out that it recognises.
        converted: The share of the multiply-accumulates that were low.
    """

    losses: NDArray[np.float64]
    accuracy: float
    converted: float


def trained(op: Any, batches: Sequence[Batch], held_out: Batch, precision: str) -> Run:
    """Train on OpenVINO, on one thread."""
    with amp.TrainingSession(
        op, [ENGINE], threads=1, precision=precision, target=TARGET
    ) as session:
        losses = [float(session.run(batch, "loss")["loss"]) for batch in batches]
        logits = session.evaluate(held_out, "logits")["logits"]
        rewriting = session._step.rewriting  # pyright: ignore[reportPrivateUsage]
    converted = 0.0 if rewriting is None else rewriting.report.summary.compute_converted
    accuracy = float((logits.argmax(1) == held_out["t"]).mean())
    return Run(np.array(losses), accuracy, converted or 0.0)


def apart(low: NDArray[np.float64], exact: NDArray[np.float64]) -> float:
    """Return the largest relative difference between two curves, averaged over windows.

    Of updates whose batches are summed, PyTorch's curve has the mean losses.
    """
    exact = exact.reshape(len(low), -1).mean(1)
    means = [c[: len(c) // WINDOW * WINDOW].reshape(-1, WINDOW).mean(1) for c in (low, exact)]
    return float(np.abs(means[0] / means[1] - 1).max())


def digits(kind: str, precision: str, seed: int, epochs: int = EPOCHS) -> Run:
    """Train a network on scikit-learn's digits: weights and order of a seed."""
    recipe_data = _example("recipe_data")
    data, held_out = recipe_data.split(recipe_data.images(0, 9))
    if kind == "digits_mlp":
        for part in (data, held_out):
            part["x"] = part["x"].reshape(len(part["x"]), -1)
        proto = train_models.mlp((64, 128, 64, 10), seed)
    else:
        proto = train_models.digits_cnn(seed)
    model = amp.load(amp.raise_opset(proto, LOW_OPSET))
    batches = list(_shuffled(data, seed, epochs))
    if precision == AUTOCAST:
        return _digits_in_torch(kind, proto, batches, held_out)
    op = amp.optimizers.Adam(1e-3).minimize(amp.value(model, "loss"))
    held_out["t"] = held_out["t"].astype(np.int64)
    return trained(op, batches, held_out, precision)


def _digits_in_torch(
    kind: str, proto: onnx.ModelProto, batches: Sequence[Batch], held_out: Batch
) -> Run:
    """Train a network on digits with PyTorch's autocast, on one thread; Dropout draws its own."""
    import torch  # pyright: ignore[reportMissingImports] it is optional
    import train_torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    weights = train_torch.weights_of(proto)
    optimizer = torch.optim.Adam(train_torch.parameters(weights), 1e-3)
    losses = list[float]()
    for batch in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            logits = train_torch.LOGITS[kind](weights, torch.from_numpy(batch["x"]))
            loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(batch["t"]))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        given = torch.from_numpy(held_out["x"])
        logits = train_torch.LOGITS[kind](weights, given, training=False)
    accuracy = float((logits.argmax(1).numpy() == held_out["t"]).mean())
    return Run(np.array(losses), accuracy, 0.0)


def _shuffled(data: Batch, seed: int, epochs: int) -> Iterator[Batch]:
    count = len(data["t"])
    for epoch in range(epochs):
        order = np.random.default_rng((seed, epoch)).permutation(count)
        for start in range(0, count - SIZE + 1, SIZE):
            yield {name: array[order[start : start + SIZE]] for name, array in data.items()}


def resnet(precision: str, steps: int = 60) -> Run:
    """Train the head of the recipe's residual network."""
    recipe, recipe_data = _example("finetune_resnet"), _example("recipe_data")
    if precision != AUTOCAST:
        recipe.MODEL = amp.raise_opset(recipe.MODEL, LOW_OPSET)
    data, held_out = recipe_data.split(recipe_data.images(5, 9))
    batches = list(islice(recipe_data.batches(data, recipe.BATCH), steps))
    return _recipe(recipe, batches, held_out, precision)


def bert(precision: str, steps: int = 200) -> Run:
    """Train the recipe's classifier of sequences; a step is an update, of two batches."""
    recipe, recipe_data = _example("finetune_bert"), _example("recipe_data")
    data, held_out = recipe_data.split(recipe_data.sequences())
    batches = list(islice(recipe_data.batches(data, recipe.BATCH), steps * recipe.ACCUMULATE))
    return _recipe(recipe, batches, held_out, precision)


RECIPES: dict[str, Callable[..., Run]] = {"resnet": resnet, "bert": bert}
DIGITS = ("digits_mlp", "digits_cnn")
UNDERFLOW = "underflow"


def _recipe(recipe: Any, batches: Sequence[Batch], held_out: Batch, precision: str) -> Run:
    if precision != AUTOCAST:
        return trained(recipe.train_op("float32"), batches, held_out, precision)
    found = recipe.in_torch(batches, held_out, low=True)
    return Run(np.array(found.losses), found.accuracy, 0.0)


def _example(name: str) -> Any:
    """Import a module of `examples/`, anew: what a recipe is told is for one run."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    sys.modules.pop(name, None)
    return importlib.import_module(name)


def compared(name: str, seeds: Sequence[int]) -> list[Row]:
    """Return a row for each training of a network."""
    if name == UNDERFLOW:
        return [_underflow(curve) for curve in UNDERFLOWING]
    trainings: dict[str, Callable[[str], Run]] = {name: RECIPES[name]} if name in RECIPES else {}
    if name in DIGITS:
        trainings = {f"{name}, seed {seed}": partial(digits, name, seed=seed) for seed in seeds}
    rows = list[Row]()
    kinds = (*PRECISIONS, AUTOCAST) if importlib.util.find_spec("torch") else PRECISIONS
    for label, train in trainings.items():
        runs = exact, low, *_ = tuple(map(train, kinds))
        rows.append(
            {
                "training": label,
                "low, %": round(100 * low.converted, 1),
                "losses": [round(float(r.losses[-WINDOW:].mean()), 4) for r in runs],
                "apart, %": [round(100 * apart(r.losses, exact.losses), 2) for r in runs[1:]],
                "accuracies, %": [round(100 * r.accuracy, 2) for r in runs],
            }
        )
        print(rows[-1], flush=True)
    return rows


UNDERFLOWING: dict[str, tuple[str, bool, str | None]] = {
    "float32": ("float32", False, None),
    "float16, emulated, no loss scale": ("float16", False, None),
    "float16, emulated, dynamic loss scale": ("float16", True, None),
    "bfloat16 on OpenVINO, no loss scale": ("bfloat16", False, ENGINE),
}
"""Curve -> precision, whether the loss is scaled, and the engine; None is ONNX Runtime."""


def remaining(curve: str, steps: int = 400) -> float:
    """Return what remains of the loss of the deep network of `underflow.py` after training."""
    precision, scaled, engine = UNDERFLOWING[curve]
    return float(underflow.curve(precision, scaled, steps, engine=engine)[-20:].mean())


def _underflow(curve: str) -> Row:
    row = {"training": f"deep network, {curve}", "loss left, %": round(100 * remaining(curve), 1)}
    print(row, flush=True)
    return row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("trainings", nargs="*", metavar="TRAINING")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--json", type=Path, help="write the figures here")


def convergence(options: argparse.Namespace) -> None:
    """Run the benchmark."""
    versions = torch_versions(sys.executable) if importlib.util.find_spec("torch") else {}
    if not versions:
        print("no column of PyTorch: this Python has no torch", file=sys.stderr)
    names = options.trainings or [*DIGITS, *RECIPES, UNDERFLOW]
    rows = [row for name in names for row in compared(name, options.seeds)]
    report("convergence", ["convergence", *sys.argv[1:]], rows, options.json, versions)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    add_arguments(arguments)
    convergence(arguments.parse_args())
