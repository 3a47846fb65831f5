"""Inputs that a model could plausibly get, made from what it declares; nothing is random twice."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite import dtypes
from amp_rewrite.emulate.emulated_feeds import FeedSpec, feed_specs
from amp_rewrite.errors import DataError, RunError
from amp_rewrite.graph.infer import infer_types
from amp_rewrite.graph.rounding import to_low
from amp_rewrite.numerics.batches import Array
from amp_rewrite.numerics.compare.embedding import index_limits

FREE_SIZES = (16, 1, 32, 64, 128, 256, 512, 576, 1024)
"""What a free dimension that no rule knows is tried with, in order."""

_IMAGE_SIZES = (224, 64, 320, 256, 48, 512)
_BATCH = re.compile(r"(^|[^a-z])(n|b|bs|batch\w*)($|[^a-z])", re.IGNORECASE)
_LENGTH = re.compile("seq|len|time|step|frame|sample|token", re.IGNORECASE)
_CHANNELS = (1, 3, 4)
_SAMPLE_RATE = 16000
_SMALL = 2  # exclusive bound of integers that no table bounds: ids that every vocabulary has
_SEQUENCE_LENGTH = 2

_Fill = Callable[[np.random.Generator, FeedSpec, tuple[int, ...]], Array]


def plausible_feeds(model: ir.Model, seed: int = 0, attempt: int = 0) -> dict[str, Any]:
    """Return one feed for every input that has no default.

    Free dimensions of one name get one size: 1 for a batch or another first dimension, 224 for the
    sides of an image (N, C, H, W) or (N, H, W, C), else 16. Floats are normal; an image is smooth
    with noise. Integers are indices that fit the tables they index, 0 or 1 otherwise; masks are
    ones, positions count up, lengths are the free size and sample rates 16000. Booleans are true.

    Args:
        model: The model; its types are used, it is not changed.
        seed: Seeds the generator.
        attempt: Another number gives other sizes for free dimensions.
    """
    rng = np.random.default_rng(seed)
    limits = index_limits(model)
    sizes = _Sizes(attempt)
    feeds: dict[str, Any] = {}
    for spec in feed_specs(model, infer_types(model)).values():
        if not spec.optional:
            feeds[spec.name] = _feed(rng, spec, sizes, limits.get(spec.name))
    return feeds


def runnable_feeds(
    model: ir.Model, run: Callable[[Mapping[str, Any]], object], seed: int = 0
) -> dict[str, Any]:
    """Return plausible feeds on which `run` succeeds, trying several sizes of free dimensions.

    Raises:
        DataError: The model runs on none of them; the user has to say what it is fed.
    """
    error: RunError | None = None
    for attempt in range(2 * len(FREE_SIZES)):
        feeds = plausible_feeds(model, seed, attempt)
        try:
            run(feeds)
        except RunError as caught:
            error = error or caught
        else:
            return feeds
    raise DataError(
        "no made-up inputs fit the model",
        found=error and error.found,
        remedy="pass real ones: data=..., or --data FILE.npz with one array per input",
    ) from error


class _Sizes:
    """The sizes of free dimensions, the same for one name everywhere."""

    def __init__(self, attempt: int) -> None:
        self.free = FREE_SIZES[attempt % len(FREE_SIZES)]
        self.image = _IMAGE_SIZES[attempt % len(_IMAGE_SIZES)]
        self.inner = self.free if attempt < len(FREE_SIZES) else 1
        self._named: dict[str, int] = {}

    def shape_of(self, spec: FeedSpec) -> tuple[int, ...]:
        declared = (None,) if spec.shape is None else spec.shape
        sides = _image_sides(declared) if _is_float(spec) else ()
        return tuple(
            self._size(d, len(declared) - i, len(declared), i in sides)
            for i, d in enumerate(declared)
        )

    def _size(self, dimension: int | str | None, from_end: int, rank: int, is_side: bool) -> int:
        if isinstance(dimension, int):
            return dimension
        size = self.image if is_side else self.free
        name = dimension or ""
        is_first = from_end == rank and rank > 1 and not _LENGTH.search(name)
        if is_first or _BATCH.search(name):
            size = 1
        elif not name and from_end > 1 and not is_side:
            size = self.inner
        return size if dimension is None else self._named.setdefault(dimension, size)


def _image_sides(shape: tuple[int | str | None, ...]) -> tuple[int, ...]:
    """Return the positions of height and width if the shape is that of images."""
    if len(shape) != 4:
        return ()
    return (1, 2) if shape[3] in _CHANNELS and shape[1] not in _CHANNELS else (2, 3)


def _is_float(spec: FeedSpec) -> bool:
    return spec.type.rsplit("(", 1)[-1].rstrip(")") in ("float", "double", "float16", "bfloat16")


def _feed(rng: np.random.Generator, spec: FeedSpec, sizes: _Sizes, limit: int | None) -> Any:
    shape = sizes.shape_of(spec)
    if spec.type.startswith(("seq(", "optional(seq(")):
        return [_array(rng, spec, shape, sizes, limit) for _ in range(_SEQUENCE_LENGTH)]
    return _array(rng, spec, shape, sizes, limit)


def _array(
    rng: np.random.Generator,
    spec: FeedSpec,
    shape: tuple[int, ...],
    sizes: _Sizes,
    limit: int | None,
) -> Array:
    dtype = np.dtype(np.float32) if spec.dtype is None else spec.dtype
    if _is_float(spec):
        return _typed(_floats(rng, spec.name, shape), dtype)
    if dtype.kind in "iu":
        return _integers(rng, spec.name, shape, limit, sizes.free, dtype)
    if dtype.kind == "b":
        return np.ones(shape, dtype)
    if dtype.kind == "c":
        return rng.standard_normal(shape).astype(dtype)
    return np.full(shape, "a", object) if dtype.kind == "O" else np.zeros(shape, dtype)


def _typed(values: Array, dtype: np.dtype[Any]) -> Array:
    low = next((t for t in dtypes.LOW.values() if t.numpy == dtype), None)
    return values.astype(dtype) if low is None else to_low(values, low)


def _floats(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    if "mask" in name.lower():
        return np.ones(shape, np.float32)
    if not shape:
        return np.array(1, np.float32)
    if len(shape) == 4 and min(shape[2], shape[1] if shape[3] in _CHANNELS else shape[3]) > 1:
        return _image(rng, shape)
    return rng.standard_normal(shape).astype(np.float32)


def _image(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return waves of a random direction and phase per channel, with noise."""
    rows, columns = _image_sides(shape)
    grid = np.ogrid[tuple(slice(n) for n in shape)]
    channels = [1 if axis in (rows, columns) else n for axis, n in enumerate(shape)]
    phase, slope, tilt = (rng.uniform(0, 2 * np.pi, channels) for _ in range(3))
    wave = np.sin(
        phase + slope * grid[rows] / shape[rows] * 4 + tilt * grid[columns] / shape[columns]
    )
    return (wave + 0.3 * rng.standard_normal(shape)).astype(np.float32)


def _integers(
    rng: np.random.Generator,
    name: str,
    shape: tuple[int, ...],
    limit: int | None,
    free: int,
    dtype: np.dtype[Any],
) -> Array:
    for pattern, value in _named_integers(free):
        if re.search(pattern, name, re.IGNORECASE):
            return np.full(shape, value).astype(dtype)
    if "position" in name.lower() and shape:
        counted = np.broadcast_to(np.arange(shape[-1]), shape)
        return (counted % (limit or shape[-1] or 1)).astype(dtype)
    if limit is None and dtype == np.uint8 and len(shape) >= 3:
        return rng.integers(0, 256, shape).astype(dtype)  # an image of bytes
    if limit is None and not shape:
        return np.array(1, dtype)
    return rng.integers(0, limit or _SMALL, shape).astype(dtype)


def _named_integers(free: int) -> Iterator[tuple[str, int]]:
    """Yield what integers of a telling name are."""
    yield "mask", 1
    yield r"(^|_)(sr|sample_?rate|sampling_?rate)$", _SAMPLE_RATE
    yield "token_type|segment", 0
    yield r"(^|[_\W])len(gth)?s?($|[_\W])", free
