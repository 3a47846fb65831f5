"""Teach a language model another text by low-rank adapters; its own weights stay, in bfloat16.

    python examples/finetune_gpt.py [--precision float16] [--steps 150]

The model predicts characters, and has read the licence. It goes on to Python's own documentation.
"""

# PyTorch is optional, and not there where types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import importlib.util
from itertools import islice
from pathlib import Path
from typing import Any

import beside_torch
import onnx
import recipe_data

import amp_rewrite as amp

MODEL = Path(__file__).resolve().parent / "models" / "gpt.onnx"
ADAPTED = "*.q_proj|*.v_proj|*.up|*.down"
RATE, RANK, ALPHA = 1e-2, 4, 8
BATCH, LENGTH, HELD_OUT = 16, 64, 64


def train_op(precision: str) -> amp.optimizers.TrainOp:
    """Return what trains the adapters."""
    model = amp.load(MODEL)
    amp.lora(model, ADAPTED, rank=RANK, alpha=ALPHA)
    loss = amp.losses.softmax_cross_entropy(model, "logits", "t", axis=1)
    optimizer: amp.optimizers.Optimizer = amp.optimizers.Adam(RATE)
    if precision == "float16":
        optimizer = amp.enable_mixed_precision_graph_rewrite(optimizer)
    return optimizer.minimize(loss)


def in_torch(
    batches: list[recipe_data.Batch], held_out: recipe_data.Batch, *, low: bool = False
) -> beside_torch.Run:
    """Do the same in PyTorch, from the same adapters, in float32 or by autocast to bfloat16."""
    import torch
    from torch_networks import Gpt, LowRank, with_weights_of

    network = with_weights_of(Gpt(), onnx.load(MODEL)).requires_grad_(False)
    with amp.TrainingSession(train_op("float32"), precision="float32") as session:
        states: dict[str, Any] = session.state_dict()
    trained: list[Any] = []
    for name in [name.removesuffix(".lora_A") for name in states if name.endswith(".lora_A")]:
        a, b = (torch.tensor(states[f"{name}.lora_{factor}"]) for factor in "AB")
        layer = LowRank(network.get_submodule(name), a, b, ALPHA / RANK)
        network.set_submodule(name, layer)
        trained += [layer.a, layer.b]
    optimizer = torch.optim.Adam(trained, RATE)
    return beside_torch.train_in_torch(network, optimizer, batches, held_out, low=low)


def main() -> None:
    """Train, and print how it went."""
    options = beside_torch.options(__doc__, steps=150)
    documentation = importlib.util.find_spec("pydoc_data.topics")
    assert documentation is not None, "Python ships with its documentation"
    text = recipe_data.characters(Path(str(documentation.origin)))
    end = len(text) // 10
    held_out = next(recipe_data.passages(text[-end:], HELD_OUT, LENGTH))
    batches = list(islice(recipe_data.passages(text[:-end], BATCH, LENGTH), options.steps))
    precision = options.precision
    ours = beside_torch.train(train_op(precision), batches, held_out, precision=precision)
    beside_torch.report(ours, lambda: in_torch(batches, held_out))


if __name__ == "__main__":
    main()
