"""Inputs that expose what plausible ones do not: extremes of what an input of a role may be.

Each kind of stress changes the inputs of some roles in a feed that the model runs on, and leaves
the others alone. It may have alternatives; the first one that the float32 model runs on counts.

Evidence: that of compare/stress_checks.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.numerics.inputs.batches import Array
from amp_rewrite.numerics.inputs.free_sizes import image_sides
from amp_rewrite.numerics.inputs.input_roles import LATEST_TIME, InputRole, Role, Scale
from amp_rewrite.numerics.inputs.plausible import smooth_image, typed

LATEST = (100_000, 32_768, 8_192, 4_096, 2_048, 1_024, 512, 128)
"""The ends of positions without a table; smaller ones are for caches of a fixed length."""

LARGE = 3.0
"""How many deviations from their mean large numbers are."""

UNNORMALISED = 100.0
"""Possible features of unknown scale: percentages, temperatures."""

_FLOATS = (Role.DATA, Role.STATE, Role.IMAGE, Role.SOUND)
_MEAN, _DEVIATION = 0.45, 0.225  # of the channels of ImageNet, about
_WHITE, _LOUDEST = 255.0, 32767.0

Feeds = dict[str, Any]


class _Change(NamedTuple):
    """A change of inputs: their roles, and the new numbers, or None to leave them as they are."""

    roles: tuple[Role, ...]
    make: Callable[[Array, InputRole, np.random.Generator], Array | None]


@dataclass(frozen=True)
class StressInputs:
    """Makes the stress inputs of one model, from a feed that it runs on."""

    base: Mapping[str, Any]
    roles: Mapping[str, InputRole]
    seed: int

    def alternatives(self, kind: str) -> Iterator[Feeds]:
        """Yield the feeds of one of KINDS, the hardest first; none if it concerns no input."""
        for roles, make in KINDS[kind]:
            rng = np.random.default_rng(self.seed)
            new: Feeds = {}
            for name, role in self.roles.items():
                array = self.base.get(name)
                if role.role in roles and isinstance(array, np.ndarray) and array.size:
                    changed = make(array, role, rng)
                    low, high = role.range or (-np.inf, np.inf)
                    if changed is not None and low <= changed.min() and changed.max() <= high:
                        new[name] = typed(changed, array.dtype)
            if new:
                yield {**self.base, **new}


def _ends_of_range(array: Array, role: InputRole, _: Any) -> Array | None:
    """Take the greatest number that the user says there is, and the least in the last quarter."""
    if role.range is None or not np.isfinite(role.range).all():
        return None
    low, high = role.range
    return np.where(np.arange(array.size) < 0.75 * array.size, high, low).reshape(array.shape)


def _counted_to(latest: int, array: Array, role: InputRole, _: Any) -> Array:
    """Count up to the last row of the table of positions, or to `latest` where there is none."""
    if array.dtype.kind == "f":
        return np.full(array.shape, min(latest, role.limit or LATEST_TIME) - 1)
    length = array.shape[-1] if array.ndim else 1
    end = max(length, latest if role.limit is None else role.limit)
    counted = np.arange(end - length, end)
    return np.broadcast_to(counted if array.ndim else counted[-1], array.shape)


def _mask_all(array: Array, role: InputRole, _: Any) -> Array:
    return _with_mask(role, np.ones(array.shape, np.bool_))


def _mask_by_true(array: Array, role: InputRole, _: Any) -> Array | None:
    """Mask everything where one, and not zero, means masked."""
    return None if role.added else np.ones(array.shape)


def _mask_ends(array: Array, role: InputRole, _: Any) -> Array | None:
    """Mask a quarter at either end: in the left one, causal attention sees nothing."""
    if not array.ndim:
        return None
    length = array.shape[-1]
    at, quarter = np.arange(length), -(-length // 4)
    outside = (at < quarter) | (at >= length - quarter)
    return _with_mask(role, np.broadcast_to(outside, array.shape))


def _with_mask(role: InputRole, masked: Array) -> Array:
    if role.added:
        return np.where(masked, np.float32(-FLOAT32.max), np.float32(0))
    return np.where(masked, 0, 1)


def _whole_vocabulary(array: Array, role: InputRole, rng: np.random.Generator) -> Array | None:
    """Take rows from the first to the last of each table, in any order."""
    if role.limit is None:
        return None
    rows = np.linspace(0, role.limit - 1, array.size).round()
    return rng.permutation(rows).reshape(array.shape)


def _repeat_value(array: Array, role: InputRole, _: Any) -> Array:
    """Give every element one value, so that a deviation to divide by is zero."""
    if role.role is Role.IDS:
        return np.full(array.shape, (role.limit or 2) // 2)
    usual = None if role.scaling is None else role.scaling.at(1.0, array.shape)
    return np.ones(array.shape) if usual is None else usual


def _make_large(array: Array, role: InputRole, _: Any) -> Array:
    """Take large numbers in the scale of the input; made-up numbers have the deviation 1."""
    scaled = None if role.scaling is None else role.scaling.at(LARGE, array.shape)
    usual = 1.0 if role.range is None else root_mean_square(array)
    return np.full(array.shape, LARGE * usual) if scaled is None else scaled


def _unnormalised(array: Array, role: InputRole, _: Any) -> Array | None:
    is_known = role.scaling is not None or role.range is not None
    return None if is_known else np.full(array.shape, UNNORMALISED)


def root_mean_square(values: Array) -> float:
    """Return the root of the mean square of the finite numbers; 0 if there are none."""
    numbers = values.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0


def _bytes_image(array: Array, role: InputRole, rng: np.random.Generator) -> Array | None:
    """Make an image of bytes with black, white and smooth parts."""
    # four channels of unknown scale are latents of a diffusion, mostly
    is_photo = role.scale is Scale.BYTES or 4 not in (array.shape[-1], array.shape[-3])
    return _photo(rng, array.shape) if is_photo and role.scale is not Scale.UNIT else None


def _normalised_image(array: Array, role: InputRole, rng: np.random.Generator) -> Array | None:
    """Make the same image of numbers from 0 to 1, or with the mean and deviation of ImageNet."""
    if role.scale is Scale.BYTES:
        return None
    unit = _photo(rng, array.shape) / _WHITE
    return unit if role.scale is Scale.UNIT else (unit - _MEAN) / _DEVIATION


def _photo(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return bytes, (N, C, H, W), (N, H, W, C) or without N: a third black, a third white."""
    whole = (1,) * (4 - len(shape)) + shape
    pixels = np.clip(smooth_image(rng, whole) * 0.25 + 0.5, 0, 1) * _WHITE
    rows, _ = image_sides(whole)
    row = np.arange(whole[rows]).reshape([-1 if axis == rows else 1 for axis in range(4)])
    pixels = np.where(row < whole[rows] / 3, 0, pixels)
    pixels = np.where(row >= whole[rows] * 2 / 3, _WHITE, pixels)
    return pixels.round().reshape(shape)


def _tone(loudest: float, array: Array, *_: Any) -> Array:
    """Make a clipped tone of rising pitch, silent in its last quarter."""
    time = np.arange(array.size)
    tone = np.clip(2 * np.sin(1e-4 * time**2 + 0.05 * time), -1, 1) * loudest
    return np.where(time < 0.75 * array.size, tone, 0).reshape(array.shape)


_MASKS, _IMAGES, _SOUNDS, _DATA = (Role.MASK,), (Role.IMAGE,), (Role.SOUND,), (Role.DATA,)

KINDS: Mapping[str, tuple[_Change, ...]] = {
    "late positions": tuple(_Change((Role.POSITIONS,), partial(_counted_to, n)) for n in LATEST),
    "fully masked rows": (_Change(_MASKS, _mask_all), _Change(_MASKS, _mask_by_true)),
    "padded rows": (_Change(_MASKS, _mask_ends),),
    "zeros": (_Change(_FLOATS, lambda array, *_: np.zeros(array.shape)),),
    "repeated values": (_Change((*_FLOATS, Role.IDS), _repeat_value),),
    "whole vocabulary": (_Change((Role.IDS,), _whole_vocabulary),),
    "normalised image": (_Change(_IMAGES, _normalised_image),),
    "image 0..255": (_Change(_IMAGES, _bytes_image),),
    "sound -1..1": (_Change(_SOUNDS, partial(_tone, 1.0)),),
    "sound of 16 bits": (_Change(_SOUNDS, partial(_tone, _LOUDEST)),),
    "large constants": (_Change(_DATA, _make_large),),
    "unnormalised numbers": (_Change(_DATA, _unnormalised),),
    "ends of the range": (_Change(tuple(Role), _ends_of_range),),
}
"""Name -> changes of inputs; of several, the first that the model runs on counts."""
