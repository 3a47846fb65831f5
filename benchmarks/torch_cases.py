"""What is compared with PyTorch: networks, their data and their losses."""

# PyTorch is optional, and not there where types are checked.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir
import torch_sequences as sequences
import torch_vision as vision
from torch import nn
from torch.nn import functional

import amp_rewrite as amp

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]
Random = np.random.Generator
BATCH = 8


@dataclass(frozen=True)
class Loss:
    """The same loss twice.

    Attributes:
        ours: Model whose outputs are "y0", "y1", ... -> the loss; labels are the input "t".
        theirs: Outputs and feeds in PyTorch -> the loss.
    """

    ours: Callable[[ir.Model], Any]
    theirs: Callable[[Any, Mapping[str, Any]], Any]


@dataclass(frozen=True)
class Case:
    """A network and what it is trained with.

    Attributes:
        network: Makes it.
        outputs: How many it has.
        loss: Its loss.
        feeds: Draws a batch: the inputs in order, then the labels if there are any.
        kept: Parameters are to be exported as they are. Otherwise exporters fold normalisation
            into convolutions, join the weights of recurrent layers, and store a table that is
            used at both ends twice, once of them turned.
        free: The axes of its inputs whose lengths the model leaves open.
    """

    network: Callable[[], nn.Module]
    loss: Loss
    feeds: Callable[[Random], Feeds]
    outputs: int = 1
    kept: bool = False
    free: tuple[int, ...] = (0,)


def _vae_loss(model: ir.Model) -> Any:
    y, mean, log_var = (amp.value(model, f"y{i}") for i in range(3))
    image = ((y - amp.value(model, "x")) ** 2).mean()
    return image - 0.05 * (1 + log_var - mean**2 - log_var.exp()).mean()


def _vae_loss_in_torch(outputs: Any, feeds: Mapping[str, Any]) -> Any:
    y, mean, log_var = outputs
    image = functional.mse_loss(y, feeds["x"])
    return image - 0.05 * (1 + log_var - mean**2 - log_var.exp()).mean()


CLASSES = Loss(
    lambda model: amp.losses.softmax_cross_entropy(model, "y0", "t", axis=1),
    lambda outputs, feeds: functional.cross_entropy(outputs, feeds["t"]),
)
CLICKS = Loss(
    lambda model: amp.losses.sigmoid_cross_entropy(model, "y0", "t"),
    lambda outputs, feeds: functional.binary_cross_entropy_with_logits(outputs, feeds["t"]),
)
IMAGES = Loss(_vae_loss, _vae_loss_in_torch)


def _normal(rng: Random, *shape: int) -> Array:
    return rng.normal(size=(BATCH, *shape)).astype(np.float32)


def _labels(rng: Random, *shape: int, classes: int = vision.CLASSES) -> Array:
    return rng.integers(0, classes, (BATCH, *shape))


def _images(rng: Random) -> Feeds:
    return {"x": _normal(rng, 3, 16, 16), "t": _labels(rng)}


def _segments(rng: Random) -> Feeds:
    return {"x": _normal(rng, 3, 16, 16), "t": _labels(rng, 16, 16)}


def _noise(rng: Random) -> Feeds:
    return {"x": _normal(rng, 3, 16, 16), "noise": _normal(rng, 4)}


def _words(rng: Random) -> Feeds:
    return {"ids": _labels(rng, sequences.LENGTH, classes=sequences.WORDS), "t": _labels(rng)}


def _masked(rng: Random) -> Feeds:
    length = sequences.LENGTH
    ids = _labels(rng, length, classes=sequences.WORDS)
    ends = rng.integers(1, length + 1, (BATCH, 1))
    mask = (np.arange(length) < ends).astype(np.int64)
    return {"ids": ids, "kinds": _labels(rng, length, classes=2), "mask": mask, "t": _labels(rng)}


def _text(rng: Random) -> Feeds:
    text = _labels(rng, sequences.LENGTH + 1, classes=sequences.WORDS)
    return {"ids": text[:, :-1].copy(), "t": text[:, 1:].copy()}


def _clicks(rng: Random) -> Feeds:
    clicks = _labels(rng, 1, classes=2).astype(np.float32)
    return {"dense": _normal(rng, 6), "chosen": _labels(rng, 3, 4, classes=20), "t": clicks}


def _sounds(rng: Random) -> Feeds:
    return {"x": _normal(rng, 1, 400), "t": _labels(rng)}


_recurrent = partial(partial, sequences.Recurrent)

CASES: dict[str, Case] = {
    "ResNet": Case(vision.ResNet, CLASSES, _images, kept=True),
    "MobileNetV3": Case(vision.MobileNetV3, CLASSES, _images, kept=True),
    "ConvNeXt": Case(vision.ConvNeXt, CLASSES, _images),
    "ViT": Case(sequences.Vit, CLASSES, _images),
    "BERT": Case(sequences.Bert, CLASSES, _masked),
    "GPT-2": Case(sequences.Gpt2, CLASSES, _text, kept=True),
    "LSTM": Case(_recurrent(nn.LSTM, bidirectional=False), CLASSES, _words, 1, True, (0, 1)),
    "GRU": Case(_recurrent(nn.GRU, bidirectional=True), CLASSES, _words, 1, True, (0, 1)),
    "UNet": Case(vision.UNet, CLASSES, _segments, kept=True),
    "MLP-Mixer": Case(vision.MlpMixer, CLASSES, _images),
    "DLRM": Case(sequences.Dlrm, CLICKS, _clicks),
    "VAE": Case(vision.Vae, IMAGES, _noise, outputs=3),
    "audio encoder": Case(sequences.AudioEncoder, CLASSES, _sounds),
}
