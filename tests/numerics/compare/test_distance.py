"""The measure: what an output may be off by, relative to its spread; each limit from both sides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amp_rewrite.dtypes import BFLOAT16, FLOAT16
from amp_rewrite.numerics.compare.distance import (
    AGREEMENT,
    CONSTANT,
    ERROR,
    LARGEST,
    SPARED,
    Comparer,
    OutputComparison,
    OutputSize,
    Tolerances,
    yardstick,
)
from amp_rewrite.numerics.compare.moved_inputs import AS_FAR, judged
from amp_rewrite.numerics.compare.slices import ALLOWED

RNG = np.random.default_rng
LIMITS = Tolerances.of(FLOAT16)


def comparer(original: Any, rewritten: Any, limits: Tolerances = LIMITS) -> Comparer:
    made = Comparer("y", limits)
    made.add(np.asarray(original), np.asarray(rewritten))
    return made


def found(original: Any, rewritten: Any) -> OutputComparison:
    return comparer(original, rewritten).result([])


def signs(count: int, seed: int = 0) -> Any:
    """Return numbers of the spread 1 and the mean 0."""
    return RNG(seed).permutation(np.tile([-1.0, 1.0], count // 2))


@pytest.mark.parametrize("offset", [0.0, 288.0, -31250.0])
@pytest.mark.parametrize(("share", "ok"), [(0.99, True), (1.01, False)])
def test_an_error_is_relative_to_the_spread_whatever_the_offset(
    offset: float, share: float, ok: bool
) -> None:
    right, off = signs(1000), share * ERROR * signs(1000, 1)
    output = found(right + offset, right + offset + off)
    assert (output.ok, output.fault) == (ok, "" if ok else "error")
    assert output.error == pytest.approx(share * ERROR, rel=1e-3)
    assert output.of == "spread"


@pytest.mark.parametrize(("share", "ok"), [(0.99, True), (1.01, False)])
def test_no_element_may_be_off_by_half_of_the_spread(share: float, ok: bool) -> None:
    right = signs(2000) + 5.25
    off = right.copy()
    off[7] += share * LARGEST
    output = found(right, off)
    assert (output.ok, output.fault) == (ok, "" if ok else "largest")
    assert output.largest == pytest.approx(share * LARGEST, rel=1e-3)


def test_an_element_far_from_the_mean_is_held_to_its_distance() -> None:
    right = np.r_[signs(2000), 400.25]
    for share, ok in ((0.04, True), (0.6, False)):
        assert found(right, np.r_[right[:-1], 400.25 * (1 - share)]).ok is ok


def test_one_of_ten_thousand_elements_is_spared() -> None:
    right = 0.7 * signs(20_000)
    for lost, ok in ((int(SPARED * right.size), True), (int(SPARED * right.size) + 1, False)):
        off = right.copy()
        off[:lost] *= -1
        assert found(right, off).ok is ok


@pytest.mark.parametrize(("rows", "ok"), [(1, True), (2, False)])
def test_one_of_a_hundred_decisions_may_change(rows: int, ok: bool) -> None:
    original = np.tile([0.0, 1.0, 0.97], (100, 1))
    other = original.copy()
    other[:rows, 2] = 1.001
    output = found(original, other)
    assert output.top1 == 1 - rows / 100
    assert (output.ok, output.fault) == (ok, "" if ok else "classes")


@pytest.mark.parametrize("lost", [np.nan, np.inf, -np.inf])
def test_no_element_may_be_lost(lost: float) -> None:
    right = signs(100_000)
    off = right.copy()
    off[0] = lost
    assert found(right, off).fault == "lost"


def test_minus_infinity_is_a_number_and_plus_infinity_is_another() -> None:
    right = np.r_[signs(100), -np.inf]
    assert found(right, right).ok
    assert found(right, np.r_[right[:-1], np.inf]).fault == "lost"


@pytest.mark.parametrize(("wrong", "ok"), [(10, True), (11, False)])
def test_whole_numbers_may_differ_in_one_of_a_hundred(wrong: int, ok: bool) -> None:
    for type_ in (np.int64, np.float32):
        right = RNG(0).integers(0, 2, 1000).astype(type_)
        off = right.copy()
        off[:wrong] = 1 - off[:wrong]
        assert found(right, off).ok is ok


@pytest.mark.parametrize("number", [0.0, 2.0])
def test_one_number_everywhere_is_not_compared(number: float) -> None:
    right = np.full(8, number)
    output = found(right, right)
    assert (output.ok, output.compared, output.constant) == (True, False, number)
    noisy = right * (1 + CONSTANT / 2 * RNG(0).random(8))
    assert not found(noisy, right).compared
    spread = right * (1 + 2 * CONSTANT * np.arange(8))
    assert found(spread, right).compared is bool(number)


def test_one_number_everywhere_that_becomes_another_fails() -> None:
    for right, off, ok in ((2.0, 2.08, True), (2.0, 2.1, False), (0.0, 1e-3, False)):
        assert found(np.full(8, right), np.full(8, off)).ok is ok


def test_few_numbers_are_measured_by_their_size_as_chance_has_it() -> None:
    assert yardstick(2.0, 0.0, 1) == 2.0
    assert yardstick(2.0, 0.1, 2) == 2.0
    assert 0.2 < yardstick(20.0, 0.1, 8) < 0.4
    assert yardstick(20.0, 0.1, 1000) == pytest.approx(0.1)
    pair = found([0.0266, 0.0265], [0.02661, 0.02648])
    assert (pair.ok, pair.of) == (True, "size")
    assert found(288 + signs(64), 288 + signs(64) * 0.9).fault == "error"


def test_batches_of_one_row_are_measured_together() -> None:
    """A year of each row: by itself each is right, together they say nothing."""
    whole = Comparer("y", LIMITS)
    rng = RNG(0)
    for _ in range(64):
        fed, year = Comparer("y", LIMITS), 2024 + 0.5 * rng.standard_normal((1, 1))
        fed.add(year, np.round(year))
        assert fed.result([]).ok
        whole.merge(fed)
    assert whole.result([]).fault == "error"


def test_columns_are_measured_by_their_own_spread() -> None:
    """Latitude and longitude, of which the rounding leaves little."""
    rng = RNG(0)
    places = [48.137, 11.575] + 0.05 * rng.standard_normal((256, 2))
    for right in (places, places.T, places[None]):
        output = found(right, right.astype(np.float16))
        assert (output.error or 0) < 1e-3
        assert output.fault == "slice"
        assert found(right, right.astype(np.float32)).ok


@pytest.mark.parametrize(
    ("columns", "rows", "ok"), [(32, 64, False), (32, 31, True), (33, 64, True), (33, 1056, False)]
)
def test_many_columns_are_quantities_of_their_own_only_if_they_are_long(
    columns: int, rows: int, ok: bool
) -> None:
    """Logits that hardly differ from token to token, and variables of the weather."""
    rng = RNG(0)
    right = 10 * rng.standard_normal(columns) + 0.01 * rng.standard_normal((rows, columns))
    assert found(right, right + 0.003 * rng.standard_normal((rows, columns))).ok is ok


@pytest.mark.parametrize(("times", "excuse"), [(0.9, "weights"), (1.1, "")])
def test_a_yardstick_excuses_what_is_as_far_and_never_passes_it(times: float, excuse: str) -> None:
    right, noise = signs(1000), 1.2 * ERROR * signs(1000, 1)
    output = comparer(right, right + AS_FAR * times * noise)
    control, moves = comparer(right, right + noise), comparer(right, right)
    for yardsticks, name in (((control, moves), "weights"), ((moves, control), "original")):
        made = judged(output, *yardsticks, LIMITS)
        assert (made.ok, made.fault) == (False, "error")
        assert made.excuse == (name if excuse else "")
    assert judged(output, control, moves, LIMITS, rounds=False).excuse == ""
    strict = Tolerances.of(FLOAT16, rtol=1e-3)
    off, still = comparer(right, right + noise, strict), comparer(right, right, strict)
    made = judged(off, off, still, strict)
    assert (made.fault, made.excuse) == ("elements", "")


def test_a_yardstick_that_passes_excuses_nothing() -> None:
    right, noise = signs(1000), 0.9 * ERROR * signs(1000, 1)
    control = comparer(right, right + noise)
    assert judged(comparer(right, right + 1.3 * noise), control, control, LIMITS).excuse == ""


def test_lost_elements_are_never_excused() -> None:
    right = signs(100)
    off = comparer(right, np.r_[np.nan, right[1:]])
    assert judged(off, off, off, LIMITS).excuse == ""
    shape = comparer(right, right[1:])
    assert judged(shape, shape, shape, LIMITS).excuse == ""


@pytest.mark.parametrize(("times", "excuse"), [(0.95, "weights"), (1.05, "")])
def test_a_slice_of_many_numbers_is_excused_by_what_moves_it(times: float, excuse: str) -> None:
    right = np.stack([100 * signs(400), signs(400, 2)], 1)
    noise = 0.12 * np.stack([0 * signs(400), signs(400, 1)], 1)
    off = comparer(right, right + ALLOWED * times * noise)
    control, moves = comparer(right, right + noise), comparer(right, right)
    made = judged(off, control, moves, LIMITS)
    assert (made.fault, made.excuse) == ("slice", excuse)


def test_the_limits_are_those_that_the_documents_name() -> None:
    assert (round(ERROR, 3), LARGEST, SPARED, AGREEMENT) == (0.045, 0.5, 1e-4, 0.99)
    assert Tolerances.of(BFLOAT16).of_slices.rtol == 0.1


@pytest.mark.parametrize(("offset", "ok"), [(1.5, True), (0.5, False)])
def test_a_column_is_measured_by_its_spread_beside_an_offset_alone(offset: float, ok: bool) -> None:
    right = np.stack([700 * signs(400), offset * 64**-1 * signs(400, 2) + 1], 1)
    if ok:
        right[:, 1] = 1.5 / 64 * signs(400, 2) + 1
    noise = np.stack([0 * signs(400), 0.2 * (right[:, 1] - 1)], 1)
    assert found(right, right + noise).ok is ok


def test_a_missing_output_and_other_lengths_are_other_shapes() -> None:
    right = signs(8)
    for a, b in ((None, right), (right, None), ([right], [right, right]), (right, right[:4])):
        made = Comparer("y", LIMITS)
        made.add(a, b)
        made.add(a, a)
        assert made.result([]).fault == "shape"
    made = Comparer("y", LIMITS)
    made.add(None, None)
    assert made.result([]).ok
    made.add([right, right], [right, -right])
    assert (made.result([]).fault, made.elements) == ("error", 16)


def test_a_type_of_whole_numbers_is_compared_number_by_number() -> None:
    right = np.arange(8)
    for a, b in ((right, right + 0.25), (right + 0.25, right)):
        output = found(a, b)
        assert (output.error, output.fault, output.within) == (None, "elements", 0.0)
    assert (found(right, right + 3).max_abs, found(right, right).dtype) == (3.0, "int64")


def test_rows_apart_must_stay_finite_and_nothing_else() -> None:
    right, rows = signs(64).reshape(8, 8), np.arange(8) < 2
    for number, row, fault in ((9.0, 1, ""), (9.0, 2, "error"), (np.nan, 1, "lost")):
        off, made = right.copy(), Comparer("y", LIMITS)
        off[row] = number
        made.add(right, off, rows)
        output = made.result([])
        assert (output.fault, output.apart, output.elements) == (fault, 16, 48)
        assert output.top1 is None


def test_a_quiet_feed_is_held_to_the_usual_size() -> None:
    right, size = signs(64), OutputSize(100.0, 200.0)
    assert (size.at_least(150.0), size.at_least(1.0)) == (OutputSize(150.0, 200.0), size)
    for usual, ok in ((size, True), (OutputSize(0.1, 0.1), False), (None, False)):
        for limits in (LIMITS, Tolerances.of(FLOAT16, rtol=0.05)):
            made = Comparer("y", limits, usual)
            made.add(np.stack([right, -right]), np.stack([0.4 * right, 0.9 * right]))
            assert made.result([]).ok is ok
            if not limits.strict:
                assert ("classes" in made.result([]).shares) is (usual is None)


def test_sums_that_are_no_numbers_pass_nothing() -> None:
    """Squares of float64 outputs of 1e155 and more are infinite."""
    with np.errstate(all="ignore"):
        assert found(1e200 * RNG(0).random(64), 2e200 * RNG(1).random(64)).fault == "error"


def test_what_comparers_of_several_feeds_have_seen_is_joined() -> None:
    right, whole = signs(64).reshape(4, 16), Comparer("y", LIMITS)
    for fed in (right, right[None]):
        part = Comparer("y", LIMITS)
        part.add(fed, fed)
        whole.merge(part)
    whole.merge(Comparer("y", LIMITS))
    assert (whole.dtype, whole.is_table, whole.elements) == ("float64", False, 128)
    assert "classes" not in whole.result(None).shares
    assert "classes" in whole.result([]).shares
    assert (Comparer("y", LIMITS).result([]).within, Comparer("y", LIMITS).spread) == (1.0, 0.0)


@pytest.mark.parametrize(("count", "of"), [(31, "size"), (32, "spread")])
def test_only_few_numbers_are_measured_by_their_size(count: int, of: str) -> None:
    for right in (np.full(count, 2.0), signs(2 * count)[:count]):
        assert found(right, right).of == of
    assert found([5.0], [5.0]).of == "size"
    assert found(288 + signs(31 * 2)[:31], 288 + signs(31 * 2)[:31]).of == "spread"
