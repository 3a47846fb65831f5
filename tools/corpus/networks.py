"""What it takes to export a network: the module, what it is fed, and which dimensions are free."""

# What exports is optional, and not there where types are checked.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, np.dtype[Any]]
Feeds = dict[str, Array]
"""Input name -> array."""
Cases = dict[str, Feeds]
"""What the model is fed, by what is special about it; "short" is the usual, and traced."""

SHORT = "short"
_IMAGE_WAVES = 4


@dataclass(frozen=True)
class Network:
    """A module with its inputs.

    Attributes:
        module: Takes the inputs as `*tensors`, in the order of `cases["short"]`, and returns a
            tuple of tensors.
        outputs: The names of what it returns.
        cases: Its inputs: short ones, and those that bring out what short ones hide.
        free: Input -> axis -> name, for dimensions of any size.
    """

    module: torch.nn.Module
    outputs: tuple[str, ...]
    cases: Cases
    free: Mapping[str, Mapping[int, str]] = field(default_factory=dict[str, dict[int, str]])


class Picked(torch.nn.Module):
    """A library's model with positional inputs, returning some of its outputs as a tuple."""

    def __init__(
        self, model: torch.nn.Module, inputs: Sequence[str], outputs: Sequence[str], **fixed: Any
    ) -> None:
        """Wrap a model; `fixed` are arguments that are no inputs of the graph."""
        super().__init__()
        self.model, self.inputs, self.outputs = model, tuple(inputs), tuple(outputs)
        self.fixed = fixed

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the model."""
        found = self.model(**dict(zip(self.inputs, tensors, strict=True)), **self.fixed)
        return tuple(found[name] for name in self.outputs)


def picked(
    model: torch.nn.Module,
    outputs: Sequence[str],
    cases: Cases,
    free: Mapping[str, Mapping[int, str]] | None = None,
    **fixed: Any,
) -> Network:
    """Return the network of a model whose inputs and outputs have these names in its library."""
    module = Picked(model, list(cases[SHORT]), outputs, **fixed).eval()
    return Network(module, tuple(outputs), cases, free or {})


def seeded(seed: int = 0) -> np.random.Generator:
    """Return a generator for inputs, and seed that of the weights."""
    torch.manual_seed(seed)
    return np.random.default_rng(seed)


def picture(rng: np.random.Generator, *shape: int) -> Array:
    """Return smooth images with noise (N, C, H, W), normalised as the libraries do."""
    batch, channels, height, width = shape
    phase, down, right = rng.uniform(0, 2 * np.pi, (3, batch, channels, 1, 1))
    rows, columns = np.ogrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    wave = np.sin(phase + _IMAGE_WAVES * (down * rows + right * columns))
    return (wave + 0.3 * rng.standard_normal(shape)).astype(np.float32)


def picture_cases(name: str, image: Array, **others: Array) -> Cases:
    """Return the cases of a model of images: also black, of one color, and not normalised."""
    images = {
        SHORT: image,
        "zeros": np.zeros_like(image),
        "one_color": np.full_like(image, 1.5),
        "bytes": np.clip(np.round(image * 50 + 128), 0, 255).astype(np.float32),
    }
    return {case: {name: array, **others} for case, array in images.items()}
