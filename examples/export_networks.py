"""Write the networks that the recipes fine-tune, as PyTorch exports them: examples/models/*.onnx.

    python examples/export_networks.py [FOLDER]

Needs torch, onnxscript and scikit-learn. The residual network has learned the digits 0 to 4, the
classifier of sequences nothing. The models are there already: this is how they were made, and what
their names and nodes come from.
"""

# What exports is optional, and not there where types are checked.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import onnx
import recipe_data
import torch
from torch.nn import functional
from torch_networks import Bert, ResNet

HERE = Path(__file__).resolve().parent


def trained(network: Any, batches: Iterator[recipe_data.Batch], steps: int) -> Any:
    """Return a network that has been trained with Adam, in inference mode."""
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    for batch in islice(batches, steps):
        tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
        optimizer.zero_grad()
        functional.cross_entropy(network(tensors["x"]), tensors["t"]).backward()
        optimizer.step()
    return network.eval()


def write_resnet(path: Path) -> None:
    """Write the residual network, with its BatchNormalization as nodes and a head for 5 to 9."""
    digits = recipe_data.images(0, 4)
    network = trained(ResNet(), recipe_data.batches(digits, 64), 100)
    network.head.reset_parameters()
    torch.onnx.export(
        network,
        (torch.zeros(2, 1, 8, 8),),
        str(path),
        input_names=["x"],
        output_names=["logits"],
        dynamic_axes={"x": {0: "N"}, "logits": {0: "N"}},
        opset_version=17,
        dynamo=False,
        do_constant_folding=False,  # it would fold the normalisation into the convolutions
        training=torch.onnx.TrainingMode.PRESERVE,
    )


def write_text_model(network: Any, names: list[str], path: Path) -> None:
    """Write a model of sequences of any number and length, without the exporter's notes."""
    axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    torch.onnx.export(
        network.eval(),
        tuple(torch.ones((2, 9), dtype=torch.int64) for _ in names),
        str(path),
        input_names=names,
        output_names=["logits"],
        dynamic_shapes=tuple(dict(axes) for _ in names),
        dynamo=True,
        external_data=False,
        verbose=False,
        optimize=False,  # it would transpose weights, and name them anew
    )
    model = onnx.load(path)
    for entry in (*model.graph.node, *model.graph.value_info, *model.graph.initializer):
        del entry.metadata_props[:]
    onnx.save(model, path)


def main(folder: Path) -> None:
    """Write all of them."""
    folder.mkdir(exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    write_resnet(folder / "resnet.onnx")
    write_text_model(Bert(), ["ids", "attention_mask"], folder / "bert.onnx")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "models")
