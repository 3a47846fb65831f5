"""Small networks of the families that see, in PyTorch."""

# PyTorch is optional, and not there where types are checked.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

CLASSES = 5


def conv(before: int, after: int, size: int = 3, step: int = 1, groups: int = 1) -> nn.Sequential:
    """Return a convolution that keeps lengths but for the step, and its normalisation."""
    layer = nn.Conv2d(before, after, size, step, size // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(after))


class Bottleneck(nn.Module):
    """The block of ResNet-50."""

    def __init__(self, before: int, inside: int, after: int, step: int) -> None:
        """Make the layers."""
        super().__init__()
        self.reduce, self.spatial = conv(before, inside, 1), conv(inside, inside, 3, step)
        self.expand, self.shortcut = conv(inside, after, 1), conv(before, after, 1, step)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, before, H, W) to (N, after, H / step, W / step)."""
        y = functional.relu(self.spatial(functional.relu(self.reduce(x))))
        return functional.relu(self.expand(y) + self.shortcut(x))


class ResNet(nn.Module):
    """K. He et al., "Deep Residual Learning for Image Recognition", 2015."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.stem, self.pool = conv(3, 8, 7, 2), nn.MaxPool2d(3, 2, 1)
        self.stages = nn.Sequential(Bottleneck(8, 8, 16, 1), Bottleneck(16, 8, 32, 2))
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, 3, H, W) to logits."""
        y = self.stages(self.pool(functional.relu(self.stem(x))))
        return self.head(functional.adaptive_avg_pool2d(y, 1).flatten(1))


class InvertedResidual(nn.Module):
    """The block of MobileNetV3: wide, depthwise, squeeze and excitation, narrow."""

    def __init__(self, width: int, inside: int) -> None:
        """Make the layers."""
        super().__init__()
        self.expand, self.depth = conv(width, inside, 1), conv(inside, inside, 5, groups=inside)
        self.squeeze, self.excite = nn.Conv2d(inside, 8, 1), nn.Conv2d(8, inside, 1)
        self.project = conv(inside, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, width, H, W) to the same."""
        y = functional.hardswish(self.depth(functional.hardswish(self.expand(x))))
        scale = self.excite(functional.relu(self.squeeze(y.mean((2, 3), keepdim=True))))
        return x + self.project(y * functional.hardsigmoid(scale))


class MobileNetV3(nn.Module):
    """A. Howard et al., "Searching for MobileNetV3", 2019."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.stem = conv(3, 8, 3, 2)
        self.blocks = nn.Sequential(InvertedResidual(8, 16), InvertedResidual(8, 24))
        self.last, self.head = nn.Linear(8, 16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, 3, H, W) to logits."""
        y = self.blocks(functional.hardswish(self.stem(x))).mean((2, 3))
        return self.head(functional.hardswish(self.last(y)))


class ConvNeXtBlock(nn.Module):
    """A depthwise convolution and two dense layers, the result scaled by channel."""

    def __init__(self, width: int) -> None:
        """Make the layers."""
        super().__init__()
        self.depth, self.norm = (
            nn.Conv2d(width, width, 7, padding=3, groups=width),
            nn.LayerNorm(width),
        )
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, width, H, W) to the same."""
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(functional.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """Z. Liu et al., "A ConvNet for the 2020s", 2022."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.stem, self.down = nn.Conv2d(3, 8, 4, 4), nn.Conv2d(8, 16, 2, 2)
        self.blocks = nn.Sequential(ConvNeXtBlock(8), self.down, ConvNeXtBlock(16))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, 3, H, W) to logits."""
        return self.head(self.norm(self.blocks(self.stem(x)).mean((2, 3))))


class UNet(nn.Module):
    """O. Ronneberger et al., "U-Net", 2015; one way up is a ConvTranspose, the other a Resize."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.first, self.second, self.third = conv(3, 8), conv(8, 16), conv(16, 16)
        self.up = nn.ConvTranspose2d(16, 16, 2, 2)
        self.join, self.last = conv(32, 8), conv(16, 8)
        self.head = nn.Conv2d(8, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, 3, H, W) to logits (N, CLASSES, H, W)."""
        first = functional.relu(self.first(x))
        second = functional.relu(self.second(functional.max_pool2d(first, 2)))
        y = self.up(functional.relu(self.third(functional.max_pool2d(second, 2))))
        y = functional.relu(self.join(torch.cat([second, y], 1)))
        y = functional.interpolate(y, scale_factor=2.0, mode="bilinear", align_corners=False)
        return self.head(functional.relu(self.last(torch.cat([first, y], 1))))


class MixerBlock(nn.Module):
    """Dense layers over patches, then over channels."""

    def __init__(self, patches: int, width: int) -> None:
        """Make the layers."""
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = self._dense(patches, 8)
        self.channels = self._dense(width, 32)

    @staticmethod
    def _dense(width: int, inside: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(width, inside), nn.GELU(), nn.Linear(inside, width))

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, patches, width) to the same."""
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class MlpMixer(nn.Module):
    """I. Tolstikhin et al., "MLP-Mixer", 2021."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 4, 4)
        self.blocks = nn.Sequential(MixerBlock(16, 16), MixerBlock(16, 16))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, 3, 16, 16) to logits."""
        y = self.blocks(self.stem(x).flatten(2).transpose(1, 2))
        return self.head(self.norm(y).mean(1))


class Vae(nn.Module):
    """D. Kingma, M. Welling, "Auto-Encoding Variational Bayes", 2013; its noise is an input."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.encoder = nn.Conv2d(3, 8, 4, 2, 1)
        self.mean, self.log_var = nn.Linear(512, 4), nn.Linear(512, 4)
        self.dense, self.decoder = nn.Linear(4, 512), nn.ConvTranspose2d(8, 3, 4, 2, 1)

    def forward(self, x: Tensor, noise: Tensor) -> Sequence[Tensor]:
        """Map (N, 3, 16, 16) and (N, 4) to an image, means and logarithms of variances."""
        y = functional.leaky_relu(self.encoder(x)).flatten(1)
        mean, log_var = self.mean(y), self.log_var(y)
        z = self.dense(mean + noise * (0.5 * log_var).exp())
        return self.decoder(functional.silu(z).unflatten(1, (8, 8, 8))), mean, log_var
