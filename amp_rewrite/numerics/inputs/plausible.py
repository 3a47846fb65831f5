"""Inputs that a model could plausibly get, made from what it declares; nothing is random twice.

Evidence: 26 corpus models run on what is made up; without, each needs data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from amp_rewrite import dtypes
from amp_rewrite.errors import DataError, OptionError, OutOfTimeError, RunError
from amp_rewrite.graph.infer import Types
from amp_rewrite.graph.io.read_object import infer_types
from amp_rewrite.graph.rounding import to_low
from amp_rewrite.graph.traits import operator
from amp_rewrite.numerics.emulate.emulated_feeds import FeedSpec, feed_specs
from amp_rewrite.numerics.inputs.batches import Array
from amp_rewrite.numerics.inputs.consumers import Consumers, moves
from amp_rewrite.numerics.inputs.free_sizes import (
    IMAGE_CHANNELS,
    FreeSizes,
    attempts,
    image_sides,
    is_float,
)
from amp_rewrite.numerics.inputs.linked_sizes import LinkedSizes, index_limits
from amp_rewrite.numerics.inputs.scalings import Scaling, scalings_of

_SAMPLE_RATE = 16000
_SMALL = 2  # exclusive bound of integers that no table bounds: ids that every vocabulary has
_SEQUENCE_LENGTH = 2
_MOST_ELEMENTS = 1 << 28  # a gigabyte of float32; a declared length of 2^31 would take 16
_SPREAD = 3.0  # normal numbers from minus that to that are spread over a range

_UPPER, _LOWER = 1e4, (0.0, -1e4, 1.0)  # what limits are, where those made up exclude everything

# operators: of two operands, which one is the lower limit (-1) of the other, and which the upper
_SIDES: Mapping[str, Mapping[int, int]] = {
    "Greater": {0: 1, 1: -1},
    "GreaterOrEqual": {0: 1, 1: -1},
    "Less": {0: -1, 1: 1},
    "LessOrEqual": {0: -1, 1: 1},
    "Clip": {1: -1, 2: 1},
    "Max": {0: -1, 1: -1},
    "Min": {0: 1, 1: 1},
}

Run = Callable[[Mapping[str, Any]], object]
"""Runs a model on feeds; RunError says that they do not fit it."""


@dataclass(frozen=True)
class PlausibleInputs:
    """Makes inputs of any size for one model.

    Attributes:
        specs: The inputs that have no default.
        limits: The number of rows to choose from, for inputs that are indices.
        ranges: The least and the greatest number of inputs, as the user says.
        bounds: Inputs that others are compared with: -1 for a lower limit, 1 for an upper one.
    """

    specs: Mapping[str, FeedSpec]
    limits: Mapping[str, int]
    ranges: Mapping[str, tuple[float, float]]
    seed: int
    links: LinkedSizes
    scalings: Mapping[str, Scaling]
    bounds: Mapping[str, int] = field(default_factory=dict[str, int])

    @staticmethod
    def of(
        model: ir.Model,
        seed: int = 0,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        *,
        types: Types | None = None,
    ) -> PlausibleInputs:
        """Look at a model, which is not changed; `types` are those of its values, if known."""
        specs = feed_specs(model, infer_types(model) if types is None else types)
        wanted = {name: spec for name, spec in specs.items() if not spec.optional}
        for name in ranges or {}:
            if name not in specs:
                raise OptionError(
                    "input_ranges names no input of the model",
                    found=repr(name),
                    expected=" or ".join(map(repr, specs)) or "a model with inputs",
                )
        own = {n for n, s in wanted.items() if is_float(s) and s.is_tensor and not _is_mask(n)}
        return PlausibleInputs(
            wanted,
            index_limits(model),
            ranges or {},
            seed,
            LinkedSizes.of(model, wanted),
            {name: scaling for name, scaling in scalings_of(model).items() if name in own},
            _bounds_of(model, wanted),
        )

    def feeds(self, sizes: FreeSizes) -> dict[str, Any]:
        """Return a feed for every input: the same one for the same sizes."""
        rng = np.random.default_rng(self.seed)
        shapes = self.links.shapes(sizes)
        lengths = _Lengths(sizes.length, self.links.total(shapes, sizes))
        arrays: dict[str, Any] = {}
        for name, spec in self.specs.items():
            given = (rng, spec, shapes[name], lengths, self.limits.get(name))
            if spec.type.startswith(("seq(", "optional(seq(")):
                arrays[name] = [_array(*given) for _ in range(_SEQUENCE_LENGTH)]
            else:
                arrays[name] = _array(*given)
        for name in self.links.steps.counts & arrays.keys():
            arrays[name] = _with_steps(arrays[name], sizes.steps, self.limits.get(name))
        for name in self.scalings.keys() - self.ranges.keys():
            normal = arrays[name]
            scaled = self.scalings[name].at(normal, normal.shape)
            if scaled is not None:  # the numbers that the model is made for
                arrays[name] = typed(scaled.astype(np.float32), normal.dtype)
        fitted = {n: _fit_range(arrays[n], ends) for n, ends in self.ranges.items() if n in arrays}
        return {**arrays, **fitted}

    def alternatives(self, feeds: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield feeds of the same sizes for a model that returns NaN on those given.

        Limits that an input is compared with lie apart, integers that may be counts are not zero,
        and floats are not negative: each by itself, then together. Known ranges stay.
        """
        limits = [{}, *({-1: low, 1: _UPPER} for low in _LOWER if self.bounds)]
        for ends, counts, signs in product(limits, (False, True), (False, True)):
            changed = {
                name: self._alternative(name, value, ends, counts=counts, signs=signs)
                for name, value in feeds.items()
            }
            if any(changed[name] is not value for name, value in feeds.items()):
                yield changed

    def _alternative(
        self, name: str, value: Any, ends: Mapping[int, float], *, counts: bool, signs: bool
    ) -> Any:
        spec = self.specs.get(name)
        if spec is None or name in self.ranges or not isinstance(value, np.ndarray):
            return value
        end = ends.get(self.bounds.get(name, 0))
        if end is not None:
            return typed(np.full(value.shape, end), value.dtype)
        if is_float(spec):
            return typed(np.abs(value.astype(np.float32)), value.dtype) if signs else value
        is_count = counts and value.dtype.kind in "iu" and name not in self.limits
        return np.maximum(value, 1).astype(value.dtype) if is_count else value

    def runnable(self, run: Run) -> tuple[int, dict[str, Any]]:
        """Return the first attempt at sizes on which `run` succeeds, and its feeds.

        Raises:
            DataError: The model runs on none of them; the user has to say what it is fed.
            OutOfTimeError: A time limit ended a run, which says nothing of the sizes.
        """
        error: RunError | None = None
        for attempt in attempts(cached=bool(self.links.caches)):
            feeds = self.feeds(FreeSizes(attempt))
            try:
                run(feeds)
            except OutOfTimeError:
                raise
            except RunError as caught:
                error = error or caught
            else:
                return attempt, feeds
        raise DataError(
            "no made-up inputs fit the model",
            found=error and error.found,
            remedy="pass real ones: data=..., or --data FILE.npz with one array per input",
        ) from error


def _bounds_of(model: ir.Model, specs: Mapping[str, FeedSpec]) -> dict[str, int]:
    """Return which single floats are limits of what they are compared with, or clip it."""
    consumers, bounds = Consumers(model), dict[str, int]()
    for value in model.graph.inputs:
        spec = specs.get(value.name or "")
        if spec is None or not is_float(spec) or any(d != 1 for d in spec.shape or ()):
            continue
        for node, index in consumers.uses(value, moves):
            sides = _SIDES.get(operator(node), {})
            if index in sides:
                bounds.setdefault(spec.name, sides[index])
    return bounds


class _Lengths(NamedTuple):
    """The values of integers that are lengths: of free dimensions, and with the past in a cache."""

    free: int
    total: int


def _array(
    rng: np.random.Generator,
    spec: FeedSpec,
    shape: tuple[int, ...],
    sizes: _Lengths,
    limit: int | None,
) -> Array:
    dtype = np.dtype(np.float32) if spec.dtype is None else spec.dtype
    _check_size(spec, shape)
    if is_float(spec):
        return typed(_floats(rng, spec.name, shape), dtype)
    if dtype.kind in "iu":
        if limit is None and dtype == np.uint8 and len(shape) >= 3:
            limit = 256  # an image of bytes
        return _integers(rng, spec.name, shape, limit, sizes).astype(dtype)
    if dtype.kind == "b":
        return np.ones(shape, dtype)
    if dtype.kind == "c":
        return rng.standard_normal(shape).astype(dtype)
    return np.full(shape, "a", object) if dtype.kind == "O" else np.zeros(shape, dtype)


def _check_size(spec: FeedSpec, shape: tuple[int, ...]) -> None:
    """Refuse to make up an array that memory may not hold."""
    size = math.prod(shape)
    if size > _MOST_ELEMENTS:
        raise DataError(
            "an input is too large to be made up",
            where=spec.name,
            found=f"{size:,} elements, of shape {' x '.join(map(str, shape))}",
            expected=f"at most {_MOST_ELEMENTS:,}",
            remedy="pass real inputs: data=..., or --data FILE.npz with one array per input",
        )


def _with_steps(values: Any, steps: int, limit: int | None) -> Any:
    """Return a number of steps; floats with several elements are not one."""
    if not isinstance(values, np.ndarray):
        return values
    is_count = values.dtype.kind in "iu" or (values.dtype.kind == "f" and values.size == 1)
    return np.full_like(values, min(steps, limit or steps)) if is_count else values


def _fit_range(values: Any, ends: tuple[float, float]) -> Any:
    """Return an array within a range: floats spread over all of it, others cut off."""
    low, high = ends
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "iufV":
        return values
    numbers = values.astype(np.float64)
    if values.dtype.kind not in "iu" and np.isfinite(ends).all():
        numbers = low + (high - low) * (numbers + _SPREAD) / (2 * _SPREAD)
    return typed(np.clip(numbers, low, high), values.dtype)


def typed(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return numbers in the element type of an input."""
    low = next((t for t in dtypes.LOW.values() if t.numpy == dtype), None)
    return values.astype(dtype) if low is None else to_low(values, low)


def _is_mask(name: str) -> bool:
    return "mask" in name.lower()


def _floats(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    if _is_mask(name):
        return np.ones(shape, np.float32)
    if not shape:
        return np.array(1, np.float32)
    if len(shape) == 4 and min(shape[2], shape[1] if shape[3] in IMAGE_CHANNELS else shape[3]) > 1:
        return smooth_image(rng, shape)
    return rng.standard_normal(shape).astype(np.float32)


def smooth_image(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return waves of a random direction and phase per channel, with noise."""
    rows, columns = image_sides(shape)
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
    sizes: _Lengths,
) -> Array:
    telling = {
        "mask": 1,
        r"(^|_)(sr|sample_?rate|sampling_?rate)$": _SAMPLE_RATE,
        "token_type|segment": 0,
        "total_sequence_length": sizes.total,
        "seqlens_k": sizes.total - 1,  # the last place, as GroupQueryAttention counts
        r"(^|[_\W])len(gth)?s?($|[_\W])": sizes.free,
    }
    for pattern, value in telling.items():
        if re.search(pattern, name, re.IGNORECASE):
            return np.full(shape, value)
    if "position" in name.lower() and shape:
        return np.broadcast_to(np.arange(shape[-1]), shape) % (limit or shape[-1] or 1)
    if limit is None and not shape:
        return np.array(1)
    return rng.integers(0, limit or _SMALL, shape)
