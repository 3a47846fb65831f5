"""The networks of train_models.py in PyTorch, as functions of the same weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import torch  # pyright: ignore[reportMissingImports] it is optional
from onnx import numpy_helper
from torch.nn import functional  # pyright: ignore[reportMissingImports] it is optional

Weights = dict[str, torch.Tensor]
Loss = Callable[..., torch.Tensor]
"""Weights and the feeds of the network, in order -> loss."""

_STATISTICS = (".mean", ".var")


def weights_of(model: onnx.ModelProto) -> Weights:
    """Return the floating-point initializers of rank 1 and more; all but statistics are leaves."""
    found: Weights = {}
    for entry in model.graph.initializer:
        array: Any = numpy_helper.to_array(entry)
        if array.dtype == np.float32 and array.ndim:
            tensor = torch.tensor(array)
            found[entry.name] = tensor.requires_grad_(not entry.name.endswith(_STATISTICS))
    return found


def parameters(weights: Weights) -> list[torch.Tensor]:
    """Return what an optimizer updates."""
    return [tensor for tensor in weights.values() if tensor.requires_grad]


def _linear(w: Weights, name: str, x: torch.Tensor) -> torch.Tensor:
    return functional.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])


def _conv(
    w: Weights, name: str, x: torch.Tensor, step: int = 1, *, training: bool = True
) -> torch.Tensor:
    weight = w[f"{name}.weight"]
    y = functional.conv2d(x, weight, stride=step, padding=weight.shape[-1] // 2)
    mean, var = w[f"{name}.mean"], w[f"{name}.var"]
    return functional.batch_norm(y, mean, var, w[f"{name}.scale"], w[f"{name}.bias"], training, 0.1)


def _norm(w: Weights, name: str, x: torch.Tensor) -> torch.Tensor:
    scale = w[f"{name}.scale"]
    return functional.layer_norm(x, scale.shape, scale, w[f"{name}.bias"], 1e-5)


def _dense(w: Weights, name: str, x: torch.Tensor) -> torch.Tensor:
    return x @ w[f"{name}.weight"] + w[f"{name}.bias"]


def mlp(w: Weights, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """Return the loss of the multilayer perceptron."""
    return functional.cross_entropy(mlp_logits(w, x), t)


def mlp_logits(w: Weights, x: torch.Tensor, *, training: bool = True) -> torch.Tensor:
    """Return the logits of the multilayer perceptron, which are the same while it trains."""
    for i in range(sum(name.startswith("layer") for name in w) // 2):
        x = functional.relu(_linear(w, f"layer{i}", x))
    return _linear(w, "last", x)


def digits_cnn(w: Weights, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """Return the loss of the network for digits."""
    return functional.cross_entropy(digits_cnn_logits(w, x), t)


def digits_cnn_logits(w: Weights, x: torch.Tensor, *, training: bool = True) -> torch.Tensor:
    """Return the logits of the network for digits."""
    x = functional.relu(_conv(w, "conv1", x, training=training))
    x = functional.max_pool2d(functional.relu(_conv(w, "conv2", x, training=training)), 2)
    x = functional.dropout(x, 0.25, training).flatten(1)
    x = functional.dropout(functional.relu(_linear(w, "hidden", x)), 0.25, training)
    return _linear(w, "last", x)


def resnet(w: Weights, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """Return the loss of the residual network."""
    x = functional.relu(_conv(w, "stem", x))
    for i in range(3):
        step = 1 if i == 0 else 2
        y = functional.relu(_conv(w, f"block{i}.conv1", x, step))
        short = x if i == 0 else _conv(w, f"block{i}.short", x, step)
        x = functional.relu(_conv(w, f"block{i}.conv2", y) + short)
    return functional.cross_entropy(_linear(w, "last", x.mean((2, 3))), t)


def _attention(
    w: Weights, name: str, x: torch.Tensor, heads: int, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Return multi-head attention: causal without a mask that is added to the scores."""
    batch, length, size = x.shape
    q, k, v = (
        _dense(w, f"{name}.{part}", x).view(batch, length, heads, -1).transpose(1, 2)
        for part in "qkv"
    )
    y = functional.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None)
    return _dense(w, f"{name}.out", y.transpose(1, 2).reshape(batch, length, size))


def transformer(w: Weights, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """Return the loss of the language model with 4 heads."""
    y = w["embedding"][x] + w["position"]
    for i in range(_layers(w)):
        y = y + _attention(w, f"layer{i}.attention", _norm(w, f"layer{i}.norm1", y), 4)
        a = functional.gelu(_dense(w, f"layer{i}.up", _norm(w, f"layer{i}.norm2", y)))
        y = y + _dense(w, f"layer{i}.down", a)
    logits = _norm(w, "norm", y) @ w["embedding"].T
    return functional.cross_entropy(logits.flatten(0, 1), t.flatten())


def bert_base(
    w: Weights, x: torch.Tensor, attention: torch.Tensor, t: torch.Tensor
) -> torch.Tensor:
    """Return the loss of the classifier, whose heads have 64 numbers, or are 2 if that is less."""
    size = w["word"].shape[1]
    y = _norm(w, "norm", w["word"][x] + w["position"][: x.shape[1]])
    mask = (1 - attention)[:, None, None, :] * -1e9
    for i in range(_layers(w)):
        a = _attention(w, f"layer{i}.attention", y, max(size // 64, 2), mask.to(y.dtype))
        y = _norm(w, f"layer{i}.norm1", y + a)
        a = functional.gelu(_dense(w, f"layer{i}.up", y))
        y = _norm(w, f"layer{i}.norm2", y + _dense(w, f"layer{i}.down", a))
    return functional.cross_entropy(_linear(w, "last", _linear(w, "pooler", y[:, 0]).tanh()), t)


def _layers(w: Weights) -> int:
    return sum(name.endswith(".norm1.scale") for name in w)


LOSSES: dict[str, Loss] = {
    "mlp": mlp,
    "digits_cnn": digits_cnn,
    "resnet": resnet,
    "transformer": transformer,
    "bert_base": bert_base,
    "bert_mini": bert_base,
}
LOGITS: dict[str, Loss] = {"digits_mlp": mlp_logits, "digits_cnn": digits_cnn_logits}
"""Network -> its logits from weights and x, `training` or not."""
