"""Train a classifier of sequences with attention masks: AdamW, no decay of biases, warm-up.

    python examples/finetune_bert.py [--precision float16] [--steps 200]

The sequences are scikit-learn's digits, read pixel by pixel; the mask ends each of them where only
white follows. An update is made of the gradients of two batches.
"""

# PyTorch is optional, and not there where types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

from itertools import islice
from pathlib import Path

import beside_torch
import onnx
import recipe_data

import amp_rewrite as amp
from amp_rewrite.optimizers import AdamW, LinearWarmUp, Optimizer, ParameterGroups

MODEL = Path(__file__).resolve().parent / "models" / "bert.onnx"
RATE, WARM_UP, DECAY = 3e-3, 10, 0.05
BATCH, ACCUMULATE = 16, 2


def train_op(precision: str) -> amp.optimizers.TrainOp:
    """Return what trains all of it."""
    model = amp.load(MODEL)
    loss = amp.losses.softmax_cross_entropy(model, "logits", "t")
    optimizer: Optimizer = ParameterGroups(
        AdamW(LinearWarmUp(RATE, WARM_UP), weight_decay=DECAY), no_decay="bias,norm"
    )
    if precision == "float16":
        optimizer = amp.enable_mixed_precision_graph_rewrite(optimizer)
    return optimizer.minimize(loss, accumulate=ACCUMULATE)


def in_torch(
    batches: list[recipe_data.Batch], held_out: recipe_data.Batch, *, low: bool = False
) -> beside_torch.Run:
    """Do the same in PyTorch, in float32 or by its autocast to bfloat16."""
    import torch
    from torch_networks import Bert, with_weights_of

    network = with_weights_of(Bert(), onnx.load(MODEL))
    named = dict(network.named_parameters())
    spared = [n for n in named if n.endswith("bias") or "norm" in n]
    groups = [
        {"params": [named[n] for n in named if n not in spared], "weight_decay": DECAY},
        {"params": [named[n] for n in spared], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, RATE, eps=1e-8)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / WARM_UP, 1))
    return beside_torch.train_in_torch(
        network, optimizer, batches, held_out, schedule=warm_up, accumulate=ACCUMULATE, low=low
    )


def main() -> None:
    """Train, and print how it went."""
    options = beside_torch.options(__doc__, steps=200)
    digits, held_out = recipe_data.split(recipe_data.sequences())
    endless = recipe_data.batches(digits, BATCH)
    batches = list(islice(endless, options.steps * ACCUMULATE))
    ours = beside_torch.train(
        train_op(options.precision),
        batches,
        held_out,
        precision=options.precision,
        accumulate=ACCUMULATE,
    )
    beside_torch.report(ours, lambda: in_torch(batches, held_out))


if __name__ == "__main__":
    main()
