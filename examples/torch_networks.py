"""The networks of the recipes in PyTorch, which exports them and trains them for comparison."""

# What exports is optional, and not there where types are checked.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, LAYERS = 24, 4, 2


class ResidualBlock(nn.Module):
    """Two convolutions beside a shortcut, as in torchvision's BasicBlock."""

    def __init__(self, before: int, after: int, step: int) -> None:
        """Make the layers of a block that divides lengths by `step`."""
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, step, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.shortcut = nn.Identity()
        if step != 1 or before != after:
            conv = nn.Conv2d(before, after, 1, step, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(after))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, before, H, W) to (N, after, H / step, W / step)."""
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """A residual network for images of 8 x 8."""

    def __init__(self, classes: int = 5) -> None:
        """Make the layers."""
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
        self.stage1 = ResidualBlock(8, 8, 1)
        self.stage2 = ResidualBlock(8, 16, 2)
        self.stage3 = ResidualBlock(16, 32, 2)
        self.head = nn.Linear(32, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images (N, 1, 8, 8) to logits (N, classes)."""
        y = self.stage3(self.stage2(self.stage1(functional.relu(self.stem(x)))))
        return self.head(y.mean((2, 3)))


class Attention(nn.Module):
    """Multi-head attention."""

    def __init__(self) -> None:
        """Make the four products."""
        super().__init__()
        self.q_proj, self.k_proj = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.v_proj, self.o_proj = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Map (N, T, WIDTH) to the same; the mask, added to the scores, is broadcast."""
        parts = (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        size = WIDTH // HEADS
        q, k, v = (part.unflatten(2, (HEADS, size)).transpose(1, 2) for part in parts)
        weights = (q @ k.transpose(2, 3) / size**0.5 + mask).softmax(-1)
        return self.o_proj((weights @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and two dense layers, each behind its normalisation."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Map (N, T, WIDTH) to the same."""
        x = x + self.attention(self.norm1(x), mask)
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Bert(nn.Module):
    """A classifier of sequences, of which a mask says where they end."""

    def __init__(self, words: int = 18, length: int = 65, classes: int = 10) -> None:
        """Make the layers."""
        super().__init__()
        self.word = nn.Embedding(words, WIDTH)
        self.position = nn.Embedding(length, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Map (N, T) and (N, T), 1 where there is a word, to logits (N, classes)."""
        x = self.word(ids) + self.position.weight[: ids.shape[1]]
        mask = (1.0 - attention_mask[:, None, None, :].float()) * -1e9
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x[:, 0]))


def with_weights_of(network: Any, model: onnx.ModelProto) -> Any:
    """Return a network that has the weights of its exported form, by name.

    One exporter stores equal weights once, and adds an Identity for each further name.
    """
    weights = {w.name: onnx.numpy_helper.to_array(w) for w in model.graph.initializer}
    copies = [node for node in model.graph.node if node.op_type == "Identity"]
    weights |= {c.output[0]: weights[c.input[0]] for c in copies if c.input[0] in weights}
    states = network.state_dict()
    exported = [name for name in states if not name.endswith("num_batches_tracked")]
    found = {name: torch.tensor(weights[name].astype(np.float32)) for name in exported}
    network.load_state_dict(states | found)
    return network
