"""Stress inputs: what each kind makes of which input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.numerics.inputs.input_roles import InputRole, Role, Scale
from amp_rewrite.numerics.inputs.scalings import Scaling
from amp_rewrite.numerics.inputs.stress_inputs import LATEST, StressInputs


def made(kind: str, array: Any, role: InputRole, seed: int = 0) -> list[Any]:
    """Return the alternatives for one input."""
    return [
        feeds["x"] for feeds in StressInputs({"x": array}, {"x": role}, seed).alternatives(kind)
    ]


def ints(*shape: int) -> Any:
    return np.ones(shape, np.int64)


def floats(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def test_late_positions_end_at_the_last_row_of_the_table() -> None:
    first, *_ = made("late positions", ints(2, 4), InputRole(Role.POSITIONS, 512))
    assert first.tolist() == [[508, 509, 510, 511]] * 2
    assert first.dtype == np.int64


def test_late_positions_without_a_table_reach_100000_and_then_less_for_caches() -> None:
    found = made("late positions", ints(1, 4), InputRole(Role.POSITIONS))
    assert [a.max() + 1 for a in found] == list(LATEST)
    assert LATEST[0] == 100_000
    assert np.array_equal(np.diff(found[0]), [[1, 1, 1]])


@pytest.mark.parametrize(
    ("array", "added", "values"),
    [
        (ints(1, 4), False, [0, 1]),
        (np.ones((1, 4), np.bool_), False, [0, 1]),
        (floats(1, 4), True, [-np.float32(FLOAT32.max)]),
    ],
)
def test_fully_masked_rows_try_either_meaning(array: Any, added: bool, values: list[Any]) -> None:
    found = made("fully masked rows", array, InputRole(Role.MASK, added=added))
    assert [set(a.ravel().tolist()) for a in found] == [{v} for v in values]
    assert all(a.dtype == array.dtype for a in found)


def test_padded_rows_are_masked_at_both_ends() -> None:
    [found] = made("padded rows", ints(1, 8), InputRole(Role.MASK))
    assert found.tolist() == [[0, 0, 1, 1, 1, 1, 0, 0]]


def test_large_constants_are_three_deviations_of_data_and_not_of_states() -> None:
    assert made("large constants", floats(2, 3), InputRole(Role.DATA))[0].max() == 3
    assert made("large constants", floats(2, 3), InputRole(Role.STATE)) == []
    half = InputRole(Role.DATA, range=(0.0, 2.0))
    assert made("large constants", 0.5 * floats(2, 3), half)[0].max() == 1.5


def test_constants_are_in_the_scale_that_the_model_normalises() -> None:
    scaling = Scaling(np.array([300.0, -5.0]), np.array([10.0, 0.5]))
    role = InputRole(Role.DATA, scaling=scaling)
    [large] = made("large constants", floats(3, 2), role)
    assert large.tolist() == [[330, -3.5]] * 3
    [usual] = made("repeated values", floats(3, 2), role)
    assert usual.tolist() == [[310, -4.5]] * 3
    [other] = made("large constants", floats(3, 5), role)
    assert (other == 3).all()  # it does not fit the input


@pytest.mark.parametrize("shape", [(1, 3, 30, 20), (1, 30, 20, 3), (30, 20, 3)])
def test_a_photo_has_black_white_and_smooth_rows(shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, np.uint8)
    [image] = made("image 0..255", array, InputRole(Role.IMAGE, scale=Scale.BYTES))
    rows = shape.index(30)
    means = image.mean(tuple(axis for axis in range(len(shape)) if axis != rows))
    assert image.dtype == np.uint8
    assert (means[:10] == 0).all()
    assert (means[20:] == 255).all()
    assert ((means[10:20] > 0) & (means[10:20] < 255)).all()


def test_a_model_that_normalises_is_given_its_scale_alone() -> None:
    unit, bytes_ = (InputRole(Role.IMAGE, scale=s) for s in (Scale.UNIT, Scale.BYTES))
    image = floats(1, 3, 30, 20)
    assert made("image 0..255", image, unit) == []
    assert made("normalised image", image, bytes_) == []
    assert made("normalised image", image, unit)[0].max() == 1


def test_sounds_reach_full_scale_and_end_in_silence() -> None:
    for kind, loudest in (("sound of 16 bits", 32767), ("sound -1..1", 1)):
        [sound] = made(kind, floats(1, 4000), InputRole(Role.SOUND))
        assert (sound.min(), sound.max()) == (-loudest, loudest)
        assert not sound[0, 3000:].any()


def test_nothing_beyond_a_declared_range_is_made_and_its_ends_are() -> None:
    role = InputRole(Role.SOUND, range=(-1.0, 1.0))
    assert made("sound of 16 bits", floats(1, 8), role) == []
    assert len(made("sound -1..1", floats(1, 8), role)) == 1
    [ends] = made("ends of the range", floats(1, 8), role)
    assert ends.tolist() == [[1] * 6 + [-1] * 2]
    assert made("ends of the range", floats(1, 8), InputRole(Role.DATA)) == []
    assert made("ends of the range", floats(1, 8), InputRole(Role.DATA, range=(0, np.inf))) == []
