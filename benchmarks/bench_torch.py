"""Compare gradients and losses with PyTorch's, of networks that both of its exporters wrote.

    python benchmarks/bench.py torch [NETWORK ...] [--json FILE]

Needs torch and onnxscript. A row has the largest error of a parameter's first gradient, divided by
the gradient's length (at least a thousandth of that of all gradients together: some are next to
nothing), and for each optimizer the largest relative error of 20 losses. SGD has momentum and
weight decay: without decay, Momentum does as TensorFlow does and moves only the rows of a table
that were read.
"""

# PyTorch is optional, and not there where types are checked.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results import Row, torch_versions
from tables import report
from torch_cases import CASES, Array, Case, Feeds

import amp_rewrite as amp
from amp_rewrite.optimizers import Adam, AdamW, Momentum, Optimizer

EXPORTERS = ("dynamo", "torchscript")
STEPS = 20
RATE, DECAY = 0.01, 5e-4
NEGLIGIBLE = 1e-3
"""A gradient's length is taken for at least so much of that of all gradients together."""

Parameters = dict[str, Array]


@dataclass(frozen=True)
class Pair:
    """One optimizer, here and in PyTorch."""

    ours: Callable[[], Optimizer]
    theirs: Callable[[Any], Any]


OPTIMIZERS = {
    "momentum": Pair(
        lambda: Momentum(RATE, 0.9, weight_decay=DECAY),
        lambda p: torch.optim.SGD(p, RATE, 0.9, weight_decay=DECAY),
    ),
    "adam": Pair(lambda: Adam(RATE / 10), lambda p: torch.optim.Adam(p, RATE / 10)),
    "adamw": Pair(
        lambda: AdamW(RATE / 10, weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, RATE / 10, weight_decay=0.1),
    ),
}


def network_of(case: Case) -> Any:
    """Return a network whose parameters and statistics all differ, as after a training.

    A network as it is made has equal ones (scales of 1), which an exporter stores once.
    """
    torch.manual_seed(0)
    network = case.network()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        for name, buffer in network.named_buffers():
            if name.endswith("running_mean"):
                buffer += 0.1 * torch.randn_like(buffer)
            if name.endswith("running_var"):
                buffer += torch.rand_like(buffer)
    return network


def export(case: Case, exporter: str, path: Path) -> None:
    """Write the model of a network in inference mode."""
    feeds = case.feeds(np.random.default_rng(0))
    inputs = {name: array for name, array in feeds.items() if name != "t"}
    outputs = [f"y{i}" for i in range(case.outputs)]
    options: dict[str, Any] = {"input_names": list(inputs), "output_names": outputs}
    if exporter == "dynamo":
        axes = tuple(dict.fromkeys(case.free, torch.export.Dim.DYNAMIC) for _ in inputs)
        options |= {"dynamo": True, "dynamic_shapes": axes, "optimize": not case.kept}
        options |= {"external_data": False, "verbose": False}
    else:
        axes = {name: dict(zip(case.free, "NT", strict=False)) for name in inputs}
        options |= {"dynamo": False, "dynamic_axes": axes, "opset_version": 17}
        if case.kept:
            preserve = torch.onnx.TrainingMode.PRESERVE
            options |= {"do_constant_folding": False, "training": preserve}
    tensors = tuple(torch.from_numpy(array) for array in inputs.values())
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(network_of(case).eval(), tensors, str(path), **options)


def batches(case: Case) -> Iterator[Feeds]:
    """Return what both are trained with."""
    for step in range(STEPS):
        yield case.feeds(np.random.default_rng((1, step)))


def train_in_torch(case: Case, pair: Pair) -> tuple[list[float], Parameters]:
    """Return the losses, and the gradients of the first step."""
    network = network_of(case).train()
    optimizer = pair.theirs(network.parameters())
    losses: list[float] = []
    first: Parameters = {}
    for feeds in batches(case):
        tensors = {name: torch.from_numpy(array) for name, array in feeds.items()}
        outputs = network(*(tensor for name, tensor in tensors.items() if name != "t"))
        loss = case.loss.theirs(outputs, tensors)
        optimizer.zero_grad()
        loss.backward()
        if not losses:
            named = network.named_parameters()
            first = {name: parameter.grad.numpy().copy() for name, parameter in named}
        optimizer.step()
        losses.append(loss.item())
    return losses, first


def train(case: Case, pair: Pair, path: Path) -> tuple[list[float], Parameters, Parameters]:
    """Return the losses, the states before the first step, and those after it."""
    train_op = pair.ours().minimize(case.loss.ours(amp.load(path)))
    with amp.TrainingSession(train_op, threads=1) as session:
        before = session.state_dict()
        first, *rest = batches(case)
        losses = [float(session.run(first)["loss"])]
        after = session.state_dict()
        losses += [float(session.run(feeds)["loss"]) for feeds in rest]
    return losses, before, after


def gradient_error(case: Case, before: Parameters, after: Parameters, wanted: Parameters) -> float:
    """Return the largest error of a parameter's gradient.

    Adam's first momentum is a tenth of the gradient. A parameter that an exporter has stored
    several times, turned or reshaped, is found by its values; its gradient is the sum of theirs.
    """
    share = 1 - Adam().beta1
    slots = {name: after[f"{name}/Adam"] / share for name in before if f"{name}/Adam" in after}
    whole = float(np.sqrt(sum(float((g**2).sum()) for g in wanted.values())))
    errors: list[float] = []
    for name, parameter in network_of(case).named_parameters():
        found = _gradient(before, slots, parameter.detach().numpy())
        length = max(float(np.linalg.norm(wanted[name])), NEGLIGIBLE * whole)
        errors.append(float(np.linalg.norm(found - wanted[name])) / length)
    return max(errors)


def _gradient(before: Parameters, slots: Parameters, parameter: Array) -> Array:
    """Return the gradient of a parameter, from those of the variables that hold its values.

    Raises:
        ValueError: No variable does.
    """
    found: list[Array] = []
    for name, slot in slots.items():
        if np.array_equal(before[name].ravel(), parameter.ravel()):
            found.append(slot.reshape(parameter.shape))
        elif np.array_equal(before[name].T, parameter):
            found.append(slot.T)
    if not found:
        raise ValueError(f"no variable has the values of a parameter of shape {parameter.shape}")
    return np.sum(found, 0)


def compare(name: str, exporter: str, folder: Path) -> Row:
    """Return the row of a network and an exporter."""
    case, path = CASES[name], folder / f"{name}.{exporter}.onnx"
    export(case, exporter, path)
    row: Row = {"network": name, "exporter": exporter}
    for optimizer, pair in OPTIMIZERS.items():
        wanted, gradients = train_in_torch(case, pair)
        losses, before, after = train(case, pair, path)
        if optimizer == "adam":
            row["gradient"] = gradient_error(case, before, after, gradients)
        row[optimizer] = float(np.max(np.abs(np.array(losses) / wanted - 1)))
    return row


def rows_of(names: list[str]) -> Iterator[Row]:
    """Compare networks, one after the other; an error is a row, too."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporters' own, by the hundred
        for name in names:
            for exporter in EXPORTERS:
                yield compare(name, exporter, Path(folder))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=", ".join(CASES))
    parser.add_argument("--json", type=Path, help="write the figures here")


def main() -> None:
    """Read the arguments and compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    options = parser.parse_args()
    rows: list[Row] = []
    for row in rows_of(options.networks or list(CASES)):
        print(row, file=sys.stderr, flush=True)
        rows.append(row)
    report("torch", ["torch", *sys.argv[1:]], rows, options.json, torch_versions(sys.executable))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main()
