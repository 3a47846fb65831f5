"""Plausible inputs with a fixed seed for a model of the corpus. Self-contained: load it by path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

Spec = Mapping[str, Sequence[Any]]
"""Input name -> (shape, fill); catalog.py explains the fills."""
Array = np.ndarray[Any, np.dtype[Any]]

_GLYPH_ROWS, _GLYPH_COLUMNS, _PIXELS = 7, 5, 3
_GLYPH_SHARE = 0.85


def real_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the graph inputs that a caller must feed: those without an initializer."""
    initialized = {i.name for i in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in initialized]


def page(rng: np.random.Generator, shape: Sequence[int], dark: float, light: float) -> Array:
    """Return a page (N, C, H, W): rows of random 5 x 7 glyphs, a bit being 3 x 3 pixels."""
    image = np.full(shape, light)
    height, width = _GLYPH_ROWS * _PIXELS, _GLYPH_COLUMNS * _PIXELS
    for y in range(6, shape[2] - height, 36):
        for x in range(8, shape[3] - width, 18):
            bits = rng.random((_GLYPH_ROWS, _GLYPH_COLUMNS)) < 0.5
            glyph = np.kron(bits, np.ones((_PIXELS, _PIXELS), bool))
            if rng.random() < _GLYPH_SHARE:
                image[:, :, y : y + height, x : x + width][:, :, glyph] = dark
    return image


def _normal(rng: np.random.Generator, shape: Sequence[int], scale: str) -> Array:
    return np.asarray(rng.standard_normal(shape) * float(scale))


def _uniform(rng: np.random.Generator, shape: Sequence[int], low: str, high: str) -> Array:
    return np.asarray(rng.uniform(float(low), float(high), shape))


def _integers(rng: np.random.Generator, shape: Sequence[int], low: str, high: str) -> Array:
    return np.asarray(rng.integers(int(low), int(high), shape))


def _constant(_: np.random.Generator, shape: Sequence[int], value: str) -> Array:
    return np.full(shape, float(value))


def _page(rng: np.random.Generator, shape: Sequence[int], dark: str, light: str) -> Array:
    return page(rng, shape, float(dark), float(light))


def _values(_: np.random.Generator, shape: Sequence[int], values: str) -> Array:
    return np.array([float(v) for v in values.split(",")]).reshape(shape)


_FILLS: dict[str, Callable[..., Array]] = {
    "n": _normal,
    "u": _uniform,
    "i": _integers,
    "c": _constant,
    "page": _page,
    "v": _values,
}


def make_inputs(model: onnx.ModelProto, spec: Spec, seed: int = 0) -> dict[str, Array]:
    """Return one array per real input of `model`.

    An input that `spec` does not name takes its declared shape (1 for a free dimension), normal
    if it is floating-point and 1 otherwise.
    """
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for value in real_inputs(model):
        tensor = value.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        declared = [d.dim_value or 1 for d in tensor.shape.dim]
        shape, fill = spec.get(value.name, (declared, "n:1" if dtype.kind == "f" else "c:1"))
        kind, *arguments = fill.split(":")
        feeds[value.name] = _FILLS[kind](rng, shape, *arguments).astype(dtype)
    return feeds
