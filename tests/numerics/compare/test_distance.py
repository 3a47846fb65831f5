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
    ROUNDINGS,
    SPARED,
    Comparer,
    OutputComparison,
    Tolerances,
    yardstick,
)
from amp_rewrite.numerics.compare.moved_inputs import AS_FAR, CEILING, STEP, judged, moved
from amp_rewrite.numerics.compare.slices import (
    ALLOWED,
    BY_CHANCE,
    ENOUGH,
    LEAST,
    OFFSET,
    QUANTITIES,
    TINY,
    WIDE,
    slack_of,
)
from amp_rewrite.numerics.compare.verify_records import output_line

RNG = np.random.default_rng
LIMITS = Tolerances.of(FLOAT16)


def comparer(original: Any, rewritten: Any, limits: Tolerances = LIMITS) -> Comparer:
    made = Comparer("y", limits)
    made.add(np.asarray(original), np.asarray(rewritten))
    return made


def found(original: Any, rewritten: Any) -> OutputComparison:
    return comparer(original, rewritten).result()


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
        off = np.r_[right[:-1], 400.25 * (1 - share)]
        assert found(right, off).ok is found(-right, -off).ok is ok


def test_one_of_ten_thousand_elements_is_spared() -> None:
    right = 0.7 * signs(20_000)
    for lost, ok in ((int(SPARED * right.size), True), (int(SPARED * right.size) + 1, False)):
        off = right.copy()
        off[:lost] *= -1
        assert found(right, off).ok is ok
        assert (found(right, off).shares["largest"] == 1.0) is ok


@pytest.mark.parametrize(("rows", "ok"), [(1, True), (2, False)])
def test_one_of_a_hundred_decisions_may_change(rows: int, ok: bool) -> None:
    original = np.tile([0.0, 1.0, 0.97], (100, 1))
    other = original.copy()
    other[:rows, 2] = 1.001
    output = found(original, other)
    assert output.top1 == 1 - rows / 100
    assert (output.ok, output.fault) == (ok, "" if ok else "classes")


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
    assert pair.ok
    assert found(288 + signs(64), 288 + signs(64) * 0.9).fault == "error"


def test_batches_of_one_row_are_measured_together() -> None:
    """A year of each row: by itself each is right, together they say nothing."""
    whole = Comparer("y", LIMITS)
    rng = RNG(0)
    for _ in range(64):
        fed, year = Comparer("y", LIMITS), 2024 + 0.5 * rng.standard_normal((1, 1))
        fed.add(year, np.round(year))
        assert fed.result().ok
        whole.add(year, np.round(year))
    assert whole.result().fault == "error"


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
        made = judged(output, *yardsticks)
        assert (made.ok, made.fault) == (False, "error")
        assert made.excuse == (name if excuse else "")
    strict = Tolerances.of(FLOAT16, rtol=1e-3)
    off, still = comparer(right, right + noise, strict), comparer(right, right, strict)
    made = judged(off, off, still)
    assert (made.fault, made.excuse) == ("elements", "")


@pytest.mark.parametrize(
    ("limits", "said", "unsaid"),
    [
        (
            Tolerances.of(FLOAT16, rtol=1e-6),
            "of the elements are within the tolerance",
            "largest 0",
        ),
        (LIMITS, ", largest ", "within the tolerance"),
    ],
)
def test_an_output_is_told_in_the_measures_that_judge_it(
    limits: Tolerances, said: str, unsaid: str
) -> None:
    original = signs(64) * np.linspace(1, 2, 64)
    line = output_line(comparer(original, original * 1.01, limits).result())
    assert said in line
    assert unsaid not in line


def test_what_a_yardstick_may_excuse() -> None:
    right, still = signs(1000), comparer(signs(1000), signs(1000))
    assert judged(still, still, still).excuse == ""
    for share, excuse in ((0.9 * CEILING, "weights"), (1.1 * CEILING, "")):
        off = comparer(right, right + share * signs(1000, 1))
        assert judged(off, off, still).excuse == excuse
    one = comparer(right, right + 0.6 * (np.arange(1000) == 7))
    assert judged(one, still, one).excuse == "original"
    strict = Tolerances.of(FLOAT16, rtol=1e-3)
    for share, excuse in ((0.9, ""), (1.1, "original")):
        off = comparer(right, right + share * ERROR * signs(1000, 1), strict)
        assert judged(off, off, off).excuse == excuse
    for limits, excuse in ((LIMITS, "weights"), (strict, "")):
        whole = comparer(np.arange(9), np.arange(9) + 1, limits)
        assert judged(whole, whole, whole).excuse == excuse
    wide, noise = np.stack([100 * right, signs(1000, 2)], 1), signs(1000, 1)
    off, control = (
        comparer(wide, wide + np.stack([big * noise, small * noise], 1))
        for big, small in ((8, 0.3), (0, 0.12))
    )
    assert judged(off, control, comparer(wide, wide)).excuse == ""


def test_inputs_move_by_one_part_in_a_million() -> None:
    x = RNG(0).standard_normal(64)
    made = moved({"x": x, "ids": np.arange(3)})
    assert made is not None
    assert set(np.round((made["x"] / x - 1) / STEP).tolist()) == {-1.0, 1.0}
    whole: Any = {"ids": np.arange(3), "s": [np.arange(2)]}
    assert moved(whole) is None
    mixed: Any = {"s": [np.arange(2), x]}
    made = moved(mixed)
    assert made is not None
    assert not np.array_equal(made["s"][1], x)


def test_a_measure_that_fails_is_excused_by_that_measure_alone() -> None:
    right, rest = signs(1000), np.arange(1000) < 20
    control = comparer(right, right + 2 * ERROR * signs(1000, 1))
    for step, excuse in ((0.4, "weights"), (0.8, "")):
        off = comparer(right, right + 2 * ERROR * signs(1000, 1) + step * rest)
        assert off.result().share == max(off.result().shares.values())
        assert judged(off, control, comparer(right, right)).excuse == excuse


def test_a_yardstick_that_passes_excuses_nothing() -> None:
    right, noise = signs(1000), 0.9 * ERROR * signs(1000, 1)
    control = comparer(right, right + noise)
    assert judged(comparer(right, right + 1.3 * noise), control, control).excuse == ""


def test_lost_elements_are_never_excused() -> None:
    right = signs(100)
    off = comparer(right, np.r_[np.nan, right[1:]])
    assert judged(off, off, off).excuse == ""
    shape = comparer(right, right[1:])
    assert judged(shape, shape, shape).excuse == ""


def test_slices_count_where_sizes_differ_widely_and_few_numbers_in_small_outputs() -> None:
    for times, is_compared in ((7.5, False), (8.5, True)):
        right = np.stack([times * signs(400), signs(400, 2)], 1)
        assert (found(right, right).slice is not None) is is_compared
    for rows, is_compared in ((4, True), (6, False)):
        right = RNG(0).uniform(1, 2, (rows, 16)) * np.repeat([100.0, 1.0], 8)
        assert (found(right, right).slice is not None) is is_compared


def test_the_limits_are_those_that_the_documents_name() -> None:
    assert (round(ERROR, 3), LARGEST, SPARED, AGREEMENT) == (0.045, 0.5, 1e-4, 0.99)
    assert (ROUNDINGS, AS_FAR, CEILING, STEP, ALLOWED) == (4, 2, 0.25, 1e-6, 4)
    assert (WIDE, ENOUGH, TINY, BY_CHANCE) == (8, 32, 64, 0.1)
    assert (LEAST, OFFSET, QUANTITIES, CONSTANT) == (1e-6, 64, 32, 1e-5)
    known = 3183.1, 50.0, 12.84, 6.555, 3.35, 2.3825, 1.669, 1.379, 1.118, 1.0
    assert slack_of([1, 2, 3, 4, 6, 8, 12, 16, 24, 32]) == pytest.approx(known, rel=1e-3)
    assert Tolerances.of(BFLOAT16).of_slices.rtol == 0.1


@pytest.mark.parametrize(("offset", "ok"), [(1.5, True), (0.5, False)])
def test_a_column_is_measured_by_its_spread_beside_an_offset_alone(offset: float, ok: bool) -> None:
    right = np.stack([700 * signs(400), offset * 64**-1 * signs(400, 2) + 1], 1)
    if ok:
        right[:, 1] = 1.5 / 64 * signs(400, 2) + 1
    noise = np.stack([0 * signs(400), 0.2 * (right[:, 1] - 1)], 1)
    assert found(right, right + noise).ok is ok


def test_a_missing_output_and_other_lengths_are_other_shapes() -> None:
    right, one = signs(8), np.float64(1)
    for a, b in ((None, one), (one, None), ([right], [right, right]), (right, right[:4])):
        made = Comparer("y", LIMITS)
        made.add(a, b)
        made.add(a, a)
        assert made.result().fault == "shape"
    made = Comparer("y", LIMITS)
    made.add(None, None)
    assert made.result().ok
    made.add([right, right[:4]], [right, -right[:4]])
    assert (made.result().fault, made.elements) == ("error", 12)


def test_a_type_of_whole_numbers_is_compared_number_by_number() -> None:
    right = np.arange(8)
    for a, b in ((right, right + 0.25), (right + 0.25, right)):
        output = found(a, b)
        assert (output.error, output.largest, output.fault) == (None, None, "elements")
        assert output.within == 0.0
    assert found(right, right + 3).max_abs == 3.0


def test_whole_numbers_may_differ_in_one_of_a_hundred() -> None:
    for wrong, fault in ((10, ""), (11, "elements")):
        right = RNG(0).integers(0, 2, 1000)
        off = right.copy()
        off[:wrong] = 1 - off[:wrong]
        output = found(right, off)
        assert (output.fault, output.share) == (fault, max(output.shares.values()))


def test_rows_apart_must_stay_finite_and_nothing_else() -> None:
    right, rows = signs(64).reshape(8, 8), np.arange(8) < 2
    for number, row, fault in ((9.0, 1, ""), (9.0, 2, "error"), (np.nan, 1, "lost")):
        off, made = right.copy(), Comparer("y", LIMITS)
        off[row] = number
        made.add(right, off, rows)
        output = made.result()
        assert (output.fault, output.apart, output.elements) == (fault, 16, 48)
        assert output.top1 is None


def test_a_quiet_feed_is_held_to_the_usual_size() -> None:
    right = signs(64)
    loud, quiet = (comparer(times * right, times * right) for times in (100.0, 0.1))
    for usual, ok in ((loud, True), (quiet, False), (None, False)):
        for limits in (LIMITS, Tolerances.of(FLOAT16, rtol=0.05)):
            made = Comparer("y", limits, usual)
            made.add(np.stack([right, -right]), np.stack([0.4 * right, 0.9 * right]))
            assert made.result().ok is ok


def test_a_tolerance_is_for_every_element() -> None:
    for rtol, atol, off, share in (
        *((0.1, None, 0.39, 0.975), (0.1, None, 0.41, 1.025), (None, 0.25, 0.24, 0.24)),
        *((0.1, 0.05, 0.44, 1.0), (0.1, 0.6, 1.01, 1 + CONSTANT)),
        *((0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 1e-3, np.inf)),
    ):
        limits = Tolerances.of(FLOAT16, rtol, atol)
        output = comparer([0.0, 2.0, -4.0], [0.0, 2.0 + off, -4.0], limits).result()
        assert (output.ok, output.share) == (share <= 1, pytest.approx(share, abs=1e-9))
        whole = comparer([0, 2, -4], [0, 2 + (off > 0), -4], limits).result()
        beyond = (1 + CONSTANT) * (off > 0)
        assert (whole.ok, whole.share) == (not off, pytest.approx(beyond, abs=1e-9))


@pytest.mark.parametrize("lost", [np.nan, np.inf, -np.inf])
def test_no_element_may_be_lost(lost: float) -> None:
    right = signs(100_000)
    off = right.copy()
    off[0] = lost
    assert found(right, off).fault == "lost"


def test_classes_count_in_tables_alone_where_slices_do_not() -> None:
    for right, counts in ((signs(64).reshape(4, 16), True), (signs(64).reshape(1, 4, 16), False)):
        made = comparer(right, right)
        assert ("classes" in made.result(all_measures=False).shares) is counts
        assert "classes" in made.result().shares


def test_what_is_one_number() -> None:
    for right, off, constant in (
        *(([0.0], [0.0], 0.0), ([0.0], [1e-3], None), ([0.0, 0.0], [1e-3, 0.0], 0.0)),
        *(([1.0], [1.0], None), ([-1.0], [-1.0], None), ([-2.0, -2.0], [-2.0, -2.0], -2.0)),
        *(([2.0, -np.inf], [2.0, -np.inf], None), ([np.nan], [np.nan], None)),
        ([2.0, 2.0, -np.inf], [2.0, 2.0, -np.inf], None),
    ):
        output = found(right, off)
        assert (output.constant, output.compared) == (constant, constant is None)
    assert found(np.zeros(8), np.zeros(8)).share == 0
    assert found(signs(64), np.zeros(64)).error == pytest.approx(1)
    assert found([-1000.0, -1000.001], [-1000.0, -1000.001]).constant == pytest.approx(-1000)
    assert found(["a"], ["b"]).fault == "elements"
    assert found(np.zeros(0, np.int64), np.zeros(0, np.int64)).ok


@pytest.mark.parametrize("top", [4.0, -4.0, 0.0])
def test_near_ties_are_no_other_class(top: float) -> None:
    for shape, low, near, rest in (
        ((5, 3), 0.0, LIMITS.rtol / ROUNDINGS * abs(top), 0.0),
        ((5, 1, 3), 0.0, ERROR * 40 / 3, 0.0),
        ((5, 1, 3), -1000.0, LIMITS.rtol * 1000, 0.2),
    ):
        for times, same in ((0.0, 1.0), (0.9, 1.0), (1.1, rest if near else 1.0)):
            right = np.tile([top, top - times * near, top - 40], (*shape[:-1], 1))
            right[0] = low or right[0]
            assert found(right, right[..., [1, 0, 2]]).top1 == same


def test_rows_of_classes_are_what_may_be_one_choice() -> None:
    rows = np.tile([[0.25, 0.75]], (4, 1))
    for right in (rows, rows[None], rows[None] * 2, rows[None] - 0.5, 0.4 * rows):
        assert found(right, right[..., ::-1]).top1 == 0.0
    for right in (0.4 * rows[None], rows[:, :1], rows[0, 0], rows[:0]):
        assert found(right, right).top1 is None
    assert found([[0.0, 0.0, -1.0]], [[-0.1, 0.0, -1.0]]).top1 == 1.0
    off = rows.copy()
    off[0, 1] = np.nan
    assert found(rows, off).top1 == 0.75


def test_what_is_not_finite_in_the_original_has_to_be_the_same() -> None:
    right = np.stack([1000 * signs(64), signs(64, 1)], 1)
    right[:3, 1] = np.nan, -np.inf, np.inf
    output = found(right, right)
    assert (output.ok, output.within, output.max_abs, output.error) == (True, 1.0, 0.0, 0.0)
    assert output.slice is not None
    assert output.slice.distance == 0.0
    for row, number in ((0, 5.0), (1, np.nan), (2, -np.inf)):
        off = right.copy()
        off[row, 1] = number
        assert (found(right, off).fault, found(right, off).nan) == ("lost", 0)
    off = right.copy()
    off[5:8] = np.array([[np.nan, np.inf], [1, np.inf], [1, np.inf]])
    assert (found(right, off).nan, found(right, off).inf) == (1, 3)


def test_sums_that_are_no_numbers_pass_nothing() -> None:
    """Squares of float64 outputs of 1e155 and more are infinite."""
    with np.errstate(all="ignore"):
        assert found(1e200 * RNG(0).random(64), 2e200 * RNG(1).random(64)).fault == "error"


def test_few_numbers_are_measured_by_their_size_or_their_spread() -> None:
    assert comparer(np.full(31, 2.0), np.zeros(31)).spread == pytest.approx(2)
    assert comparer(10 + 3 * signs(64), signs(64)).spread == pytest.approx(3)
    assert found([3.0, 1.0], [3.5, 1.0]).largest == pytest.approx(0.5 / 5**0.5)
    assert (yardstick(1.0, CONSTANT, 1000), yardstick(20.0, 0.1, 8)) == (1.0, 0.1 * slack_of(7))
