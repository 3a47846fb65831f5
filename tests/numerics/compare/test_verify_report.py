"""What a report of `verify` says, of records made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from amp_rewrite.numerics.compare.distance import OutputComparison, Tolerances
from amp_rewrite.numerics.compare.selection_report import SelectionComparison
from amp_rewrite.numerics.compare.stress_report import Outcome, StressReport, StressResult
from amp_rewrite.numerics.compare.verify_records import (
    DeviceComparison,
    Infinity,
    Misfit,
)
from amp_rewrite.numerics.compare.verify_report import VerifyReport

LIMITS = Tolerances(0.01, 0.0, strict=False)

GOOD = OutputComparison(
    *("y", "float32", 8),
    max_abs=0.25,
    max_rel=0.5,
    scaled_error=0.02,
    cosine=1.0,
    distance=0.01,
    within=1.0,
    nan=0,
    inf=0,
    top1=None,
    shape_differs=False,
    ok=True,
)
BAD = replace(GOOD, name="z", scaled_error=0.12, distance=0.1, ok=False, fault="distance")
SHAPE = replace(BAD, name="s", fault="shape", shape_differs=True)
EMPTY = replace(GOOD, name="e", elements=0)
CONSTANT = replace(GOOD, name="c", constant=2.0)
AS_ORIGINAL = replace(GOOD, name="m", as_original=True)

OVERFLOW = Infinity("v", "n", "Exp", 3, 0)
MISFIT = Misfit("v", "n", "Exp", 0.5)
DEVICE = DeviceComparison(("GPU",), (), error="no memory", asked=True)
PICKED = SelectionComparison("n", "TopK", "v", chosen=4, same=4)


def stress(outcome: Outcome, *outputs: OutputComparison) -> StressReport:
    result = StressResult("zeros", ("x: 0",), outcome, "it is off", outputs)
    return StressReport((result,), 1.0, 5.0)


def report(*outputs: OutputComparison, **given: Any) -> VerifyReport:
    facts = {"feeds": 2, "data": "x.npz", "outputs": outputs or (GOOD,)} | given
    return VerifyReport("float16", tolerances=LIMITS, **facts)


FIRST = "output z: error 10 % of its size"
LEFT = ("feed 1: NaN", "feed 2: NaN")
OVERFLOWS = (
    "1 values inside overflow, first v (Exp n): 3 elements are infinite where the original is "
    "finite"
)
CASES = {
    "passed": (report(), "Passed on 2 batches of your data", (), True),
    "one batch": (report(feeds=1), "Passed on 1 batch of your data", (), True),
    "no batch": (report(feeds=0), "Passed on 0 batches of your data", (), True),
    "made up": (
        report(feeds=1, data="made-up inputs, seed 0"),
        "Passed on 1 made-up batch",
        (),
        True,
    ),
    "many made up": (
        report(feeds=1000, data="made-up inputs, seed 0"),
        "Passed on 1,000 made-up batches",
        (),
        True,
    ),
    "one of two": (report(GOOD, BAD), "FAILED", (FIRST,), False),
    "two": (report(BAD, SHAPE), "FAILED", (FIRST, "output s has another shape"), False),
    "refused": (report(refused="no load"), "no load; FAILED", ("no load",), False),
    "refused and off": (
        report(BAD, refused="no load"),
        "no load; FAILED",
        ("no load", FIRST),
        False,
    ),
    "overflow": (report(BAD, infinities=(OVERFLOW,)), "FAILED", None, False),
    "absorbed": (
        report(infinities=(OVERFLOW,)),
        "FAILED",
        (f"{OVERFLOWS}; the outputs absorb it",),
        False,
    ),
    "misfit": (report(misfits=(MISFIT,)), "FAILED", (str(MISFIT),), False),
    "stressed": (
        report(stress=stress("held", GOOD)),
        "Passed on 2 batches of your data and on stress inputs",
        (),
        True,
    ),
    "stress in doubt": (
        report(stress=stress("doubtful", GOOD)),
        "Passed on 2 batches of your data",
        (),
        True,
    ),
    "constant, and stress in doubt": (
        report(CONSTANT, stress=stress("doubtful", GOOD)),
        "Passed on stress inputs; nothing was compared on the others",
        (),
        True,
    ),
    "stress left out": (
        report(stress=stress("left out", GOOD)),
        "Passed on 2 batches of your data",
        (),
        True,
    ),
    "stress fails": (
        report(stress=stress("failed", BAD)),
        "FAILED",
        ("on zeros (x: 0): it is off",),
        False,
    ),
    "device": (report(device=DEVICE), "FAILED", ("GPU could not run the model: no memory",), False),
    "device nobody asked for": (
        report(device=replace(DEVICE, asked=False)),
        "Passed on 2 batches of your data",
        (),
        True,
    ),
    "no elements": (report(EMPTY), "nothing was compared: no elements", (), None),
    "constant and refused": (
        report(CONSTANT, refused="no load"),
        "no load; FAILED",
        ("no load",),
        False,
    ),
    "no elements and no feeds": (
        report(EMPTY, feeds=0),
        "FAILED",
        ("nothing was compared: no elements",),
        False,
    ),
    "constant": (
        report(CONSTANT),
        "nothing was compared: output c is 2 everywhere in both models",
        (),
        None,
    ),
    "constant under stress": (
        report(CONSTANT, stress=stress("held", GOOD)),
        "Passed on stress inputs; nothing was compared on the others",
        (),
        True,
    ),
    "constant, and stress left out": (
        report(CONSTANT, stress=stress("left out", GOOD)),
        "nothing was compared: output c is 2 everywhere in both models",
        (),
        None,
    ),
    "left out": (
        report(EMPTY, feeds=0, left_out=LEFT),
        "In doubt: nothing was compared: feed 1: NaN",
        (),
        None,
    ),
    "one left out": (report(left_out=LEFT[:1]), "Passed on 2 batches of your data", (), True),
    "left out, and stress": (
        report(EMPTY, feeds=0, left_out=LEFT, stress=stress("held", GOOD)),
        "Passed on stress inputs; nothing was compared on the others",
        (),
        True,
    ),
    "unfinished": (report(unfinished="time is over"), "In doubt: time is over", (), None),
    "unfinished and off": (report(BAD, unfinished="time is over"), "FAILED", (FIRST,), False),
    "unfinished before anything": (
        report(EMPTY, feeds=0, left_out=LEFT, unfinished="time is over"),
        "In doubt: time is over",
        (),
        None,
    ),
    "unfinished without feeds": (
        report(feeds=0, unfinished="time is over"),
        "In doubt: time is over",
        (),
        None,
    ),
    "refused and left out": (
        report(EMPTY, feeds=0, left_out=LEFT, refused="no load"),
        "no load; FAILED",
        ("no load",),
        False,
    ),
    "as the original": (
        report(GOOD, AS_ORIGINAL, moves=(replace(BAD, name="m"),)),
        "Passed on 2 batches of your data (output m within the original's own changes)",
        (),
        True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_verdict_follows_from_the_records(name: str) -> None:
    made, verdict, failures, holds = CASES[name]
    assert made.verdict == verdict
    assert made.holds is holds
    assert made.ok is (not made.failures and made.unjudged is None)
    assert made.ok is bool(holds) or not made.compared
    if failures is None:
        failures = (FIRST, OVERFLOWS + "; the outputs absorb it")
    assert made.failures == failures
    said = f"FAILED: {made.failures[0]}" if made.failures else verdict
    start = f"<VerifyReport: float16 {said}; {made.feeds} feeds ("
    assert repr(made).startswith(start[:80])
    assert made.to_text(width=300).startswith(made.headline)


@pytest.mark.parametrize(
    ("made", "headline"),
    [
        (report(BAD), f"FAILED: {FIRST}"),
        (report(BAD, SHAPE), f"FAILED: {FIRST}"),
        (report(SHAPE, BAD), "FAILED: output s has another shape"),
        (report(BAD, refused="no load"), "no load; FAILED"),
        (report(misfits=(MISFIT,), refused="no load"), "no load; FAILED"),
        (report(GOOD, CONSTANT), "Passed on 2 batches of your data: worst error 2 % of "),
        (report(CONSTANT), "nothing was compared: output c is 2 everywhere in both models"),
        (report(unfinished="late"), "In doubt: late: worst error so far 2 % of the output's peak"),
        (
            report(control=(replace(GOOD, scaled_error=0.03),)),
            "Passed on 2 batches of your data: worst error 2 % of the output's peak (rounding the "
            "weights alone: 3 %)",
        ),
    ],
)
def test_a_headline_has_what_decided(made: VerifyReport, headline: str) -> None:
    assert made.headline.startswith(headline)
    assert ("(rounding" in made.headline) == ("(rounding" in headline)


CONTROL = "rounding the weights alone to float16 gives the same error: "


@pytest.mark.parametrize(
    ("made", "doubt"),
    [
        (report(), None),
        (report(BAD), None),
        (report(BAD, control=(BAD,)), CONTROL + FIRST),
        (report(GOOD, BAD, control=(GOOD, BAD)), CONTROL + FIRST),
        (report(BAD, control=(replace(BAD, distance=0.01),)), None),
        (report(BAD, control=(BAD,), refused="no load"), None),
        (report(BAD, control=(BAD,), misfits=(MISFIT,)), None),
        (report(BAD, control=(BAD,), stress=stress("failed", BAD)), None),
        (report(BAD, control=(BAD,), stress=stress("held", GOOD)), CONTROL + FIRST),
        (report(BAD, control=(BAD,), unfinished="late"), CONTROL + FIRST),
        (report(control=(GOOD,), unfinished="late"), "late"),
        (report(control=(BAD,), misfits=(MISFIT,)), None),
        (
            report(BAD, untold=("Loop l: two results",)),
            "nodes inside If, Loop or Scan select by values, and the comparison could not use the "
            "original's selection (Loop l: two results). A swapped near tie may be the only "
            "difference",
        ),
    ],
)
def test_doubt_is_about_outputs_that_nothing_else_speaks_against(
    made: VerifyReport, doubt: str | None
) -> None:
    assert made.doubt == doubt
    assert made.to_dict()["doubt"] == doubt
    told = made.to_text(width=300).splitlines()
    assert (f"In doubt: {doubt}" in told) == bool(doubt and made.failures)


FULL = report(
    *(GOOD, replace(AS_ORIGINAL, apart=5, apart_error=0.5), CONSTANT),
    stress=stress("doubtful", GOOD),
    left_out=LEFT,
    control=(replace(GOOD, scaled_error=0.03), replace(GOOD, scaled_error=0.01)),
    moves=(replace(BAD, name="m"),),
    selections=(PICKED,),
    shapes={"y": (2, 4)},
    infinities=(Infinity("v", "n", "Exp", 0, 1),),
)


def test_a_report_as_data_has_its_judgements_and_its_records() -> None:
    content = FULL.to_dict()
    judged = ["version", "ok", "verdict", "failures", "doubt", "notes", "test"]
    assert list(content)[:7] == judged
    assert [content[key] for key in judged] == [
        *(1, False, "FAILED", list(FULL.failures), None, list(FULL.notes()), FULL.test)
    ]
    assert "shapes" not in content
    assert content["outputs"][0]["max_abs"] == 0.25
    assert FULL.shapes == {"y": (2, 4)}
    endless = report(replace(GOOD, max_rel=float("inf"), cosine=float("nan")))
    text = endless.to_json()
    assert text.endswith("\n}\n")
    assert text.startswith('{\n "version": 1,\n "ok": true,')
    (output,) = json.loads(text)["outputs"]
    assert (output["max_rel"], output["cosine"]) == (None, None)


@pytest.mark.parametrize(
    ("made", "doubt"),
    [
        (report(BAD, EMPTY, control=(BAD,)), True),
        (report(BAD, SHAPE, control=(BAD,)), False),
        (report(BAD, control=(BAD,), infinities=(OVERFLOW,)), False),
        (report(BAD, control=(BAD,), device=DEVICE), False),
        (report(BAD, control=(BAD,), device=replace(DEVICE, asked=False)), True),
        (report(EMPTY, feeds=0, left_out=LEFT), True),
        (report(EMPTY, feeds=0, left_out=LEFT, infinities=(OVERFLOW,)), False),
        (report(EMPTY), False),
    ],
)
def test_a_doubt_is_told_only_where_there_is_one(made: VerifyReport, doubt: bool) -> None:
    assert (made.doubt is not None) is doubt
    assert made.to_dict()["ok"] is made.ok
