"""Fine-tune the head of a residual network that PyTorch exported: its backbone stays as it is.

    python examples/finetune_resnet.py [--precision float16] [--steps 60]

The network knows the digits 0 to 4 of scikit-learn, and learns to tell 5 to 9 apart. Freezing the
scale and the bias of a BatchNormalization freezes its running statistics, too.
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

MODEL = Path(__file__).resolve().parent / "models" / "resnet.onnx"
RATE, MOMENTUM, BATCH = 0.1, 0.9, 64


def train_op(precision: str) -> amp.optimizers.TrainOp:
    """Return what trains the head."""
    model = amp.load(MODEL)
    amp.freeze(model, "stem.*|stage*")
    loss = amp.losses.softmax_cross_entropy(model, "logits", "t")
    optimizer: amp.optimizers.Optimizer = amp.optimizers.Momentum(RATE, MOMENTUM)
    if precision == "float16":
        optimizer = amp.enable_mixed_precision_graph_rewrite(optimizer)
    return optimizer.minimize(loss)


def in_torch(
    batches: list[recipe_data.Batch], held_out: recipe_data.Batch, *, low: bool = False
) -> beside_torch.Run:
    """Do the same in PyTorch, in float32 or by its autocast to bfloat16."""
    import torch
    from torch_networks import ResNet, with_weights_of

    network = with_weights_of(ResNet(), onnx.load(MODEL)).eval()
    network.requires_grad_(False)
    network.head.requires_grad_(True)
    optimizer = torch.optim.SGD(network.head.parameters(), RATE, MOMENTUM)
    return beside_torch.train_in_torch(network, optimizer, batches, held_out, low=low)


def main() -> None:
    """Train, and print how it went."""
    options = beside_torch.options(__doc__, steps=60)
    digits, held_out = recipe_data.split(recipe_data.images(5, 9))
    batches = list(islice(recipe_data.batches(digits, BATCH), options.steps))
    precision = options.precision
    ours = beside_torch.train(train_op(precision), batches, held_out, precision=precision)
    beside_torch.report(ours, lambda: in_torch(batches, held_out))


if __name__ == "__main__":
    main()
