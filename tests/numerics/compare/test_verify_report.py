"""What a report of `verify` says, of records made by hand: every branch of its verdict."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from amp_rewrite.numerics.compare.distance import OutputComparison, Tolerances
from amp_rewrite.numerics.compare.verdict import EXIT_STATUS, Status, Verdict, judged
from amp_rewrite.numerics.compare.verify_records import (
    DeviceComparison,
    FedBack,
    Inside,
    Outcome,
    StressReport,
    StressResult,
)
from amp_rewrite.numerics.compare.verify_report import VerifyReport

LIMITS = Tolerances(0.01, 0.0, strict=False)

GOOD = OutputComparison(
    *("y", 8),
    max_abs=0.25,
    scaled_error=0.02,
    error=0.01,
    largest=0.03,
    cosine=1.0,
    within=1.0,
    nan=0,
    inf=0,
    top1=None,
    shape_differs=False,
    shares={"error": 0.2, "largest": 0.06},
)
BAD = replace(GOOD, name="z", error=0.1, shares={"error": 2.2}, fault="error")
SHAPE = replace(BAD, name="s", fault="shape", shape_differs=True)
LOST = replace(BAD, name="l", fault="lost", nan=3)
EMPTY = replace(GOOD, name="e", elements=0)
CONSTANT = replace(GOOD, name="c", constant=2.0)
BY_WEIGHTS, UNSTEADY = replace(BAD, excuse="weights"), replace(BAD, excuse="original")

OVERFLOW = Inside("v", "n", "Exp", inf=3)
MISFIT = Inside("v", "n", "Exp", 0.5)
DEVICE = DeviceComparison(("GPU",), (), error="no memory")
PICKED = "TopK n"


def stress(outcome: Outcome, *outputs: OutputComparison, name: str = "zeros") -> StressReport:
    return StressReport((StressResult(name, ("x: 0",), outcome, "it is off", outputs),), 1.0, 5.0)


def report(*outputs: OutputComparison, **given: Any) -> VerifyReport:
    facts = {"feeds": 2, "data": "x.npz", "outputs": outputs or (GOOD,)} | given
    return VerifyReport("float16", tolerances=LIMITS, **facts)


FIRST = "output z: error 10 % of its spread, at most 4.5 % passes"
LEFT = ("feed 1: NaN", "feed 2: NaN")
MADE_UP = "made-up inputs, seed 0"
OVERFLOWS = (
    "1 value inside overflows, first v (Exp n): 3 elements are infinite where the original is "
    "finite"
)
WORST = "worst error 1 % of the spread of output y"
MINE = "2 batches of your data"
CASES: dict[str, tuple[VerifyReport, Status, str]] = {
    "passed": (report(), "passed", f"Passed on {MINE}: {WORST}"),
    "one batch": (report(feeds=1), "passed", f"Passed on 1 batch of your data: {WORST}"),
    "made up": (
        report(feeds=1, data=MADE_UP),
        "passed",
        f"Passed on 1 made-up batch: {WORST}",
    ),
    "rounded weights beside it": (
        report(control=(replace(GOOD, error=0.03),)),
        "passed",
        f"Passed on {MINE}: {WORST} (rounding the weights alone: 3 %)",
    ),
    "a constant beside it": (report(GOOD, CONSTANT), "passed", f"Passed on {MINE}: {WORST}"),
    "one of two": (report(GOOD, BAD), "failed", f"FAILED on {MINE}: {FIRST}"),
    "two": (report(BAD, SHAPE), "failed", f"FAILED on {MINE}: {FIRST} (and 1 more)"),
    "shape": (report(SHAPE), "failed", f"FAILED on {MINE}: output s has another shape"),
    "lost": (
        report(LOST),
        "failed",
        f"FAILED on {MINE}: output l: 3 elements are infinite or NaN, finite in the original",
    ),
    "refused": (report(refused="no load"), "failed", f"FAILED on {MINE}: no load"),
    "overflow": (
        report(infinities=(OVERFLOW,)),
        "failed",
        f"FAILED on {MINE}: {OVERFLOWS}",
    ),
    "misfit": (report(misfits=(MISFIT,)), "failed", f"FAILED on {MINE}: {MISFIT.misfit}"),
    "stressed": (
        report(stress=stress("held", GOOD)),
        "passed",
        f"Passed on {MINE} and on stress inputs: {WORST}",
    ),
    "stress fails": (
        report(stress=stress("failed", BAD)),
        "failed",
        f"FAILED on {MINE}: on zeros (x: 0): it is off",
    ),
    "stress of another scale is off": (
        report(stress=stress("doubtful", BAD)),
        "passed",
        f"Passed on {MINE}, but not on zeros: {WORST}",
    ),
    "stress of another scale loses elements": (
        report(stress=stress("doubtful", LOST)),
        "in doubt",
        f"In doubt on {MINE}: on zeros (x: 0): it is off. If your inputs are like that, pass "
        f"--data; if not, --input-range NAME=LOW:HIGH; {WORST}",
    ),
    "hundreds lose elements": (
        report(stress=stress("doubtful", LOST, name="unnormalised numbers")),
        "passed",
        f"Passed on {MINE}, but not on unnormalised numbers: {WORST}",
    ),
    "device": (
        report(device=DEVICE),
        "failed",
        f"FAILED on {MINE}: GPU could not run the model: no memory",
    ),
    "no elements": (report(EMPTY), "not compared", "Not compared: no elements"),
    "constant": (
        report(CONSTANT),
        "not compared",
        "Not compared: output c is 2 everywhere in the original",
    ),
    "constant under stress": (
        report(CONSTANT, stress=stress("held", GOOD)),
        "passed",
        "Passed on stress inputs (nothing was compared on the others)",
    ),
    "left out": (
        report(EMPTY, feeds=0, left_out=LEFT),
        "not compared",
        "Not compared: feed 1: NaN",
    ),
    "unfinished": (
        report(unfinished="time is over"),
        "in doubt",
        f"In doubt on {MINE}: time is over; {WORST}",
    ),
    "unfinished before anything": (
        report(EMPTY, feeds=0, unfinished="time is over"),
        "in doubt",
        "In doubt on 0 batches of your data: time is over",
    ),
    "as far as the weights": (
        report(BY_WEIGHTS, control=(BAD,)),
        "in doubt",
        f"In doubt on {MINE}: {FIRST}; rounding the weights alone to float16 gives the same error "
        "(error 10 % of its spread, at most 4.5 % passes); worst error 10 % of the spread of "
        "output z (rounding the weights alone: 10 %)",
    ),
    "as unsteady as the original": (
        report(UNSTEADY),
        "in doubt",
        f"In doubt on {MINE}: {FIRST}; so does the float32 original when its inputs change by one "
        "part in 1,000,000; worst error 10 % of the spread of output z",
    ),
    "in doubt and wrong": (
        report(BY_WEIGHTS, misfits=(MISFIT,)),
        "failed",
        f"FAILED on {MINE}: {MISFIT.misfit}",
    ),
}


WHOLE = replace(GOOD, name="i", error=None, within=0.995)
FOUND = f"{WORST} here"
SAME = f"{FIRST}; rounding the weights alone gives the same error"
ENDS = "If your inputs are like that, pass --data; if not, --input-range NAME=LOW:HIGH"


def device(*original: OutputComparison, **more: Any) -> VerifyReport:
    made = DeviceComparison(("GPU",), (BAD,), original=original, itself=(GOOD,))
    return report(device=replace(made, **more))


def calls(*outputs: OutputComparison) -> VerifyReport:
    return report(fed_back=FedBack(9, ("s",), outputs))


def twice(**lost: int) -> VerifyReport:
    return report(stress=stress("doubtful", GOOD, replace(BAD, **lost)))


DOUBT = f"In doubt on {MINE}: on zeros (x: 0): it is off. {ENDS}; {FOUND}"


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (report(), f"Passed on {MINE}: {FOUND}"),
        (report(BAD), f"FAILED on {MINE}: {FIRST}"),
        (report(unfinished="late"), f"In doubt on {MINE}: late; {FOUND}"),
        (report(EMPTY, feeds=0, unfinished="late"), "Not compared: late"),
        (report(CONSTANT), "Not compared: output c is 2 everywhere in the original"),
        (
            report(CONSTANT, stress=stress("held", GOOD)),
            "Passed on stress inputs (nothing was compared on the others)",
        ),
        (report(GOOD, BAD, infinities=(OVERFLOW,)), f"FAILED on {MINE}: {FIRST} (and 1 more)"),
        (twice(inf=1), DOUBT),
        (twice(nan=1), DOUBT),
        (calls(GOOD, BAD), f"FAILED on {MINE}: after 9 calls with s fed back: {FIRST}"),
        (device(GOOD), f"Passed on {MINE}: {FOUND}"),
        (device(GOOD, BAD), f"FAILED on {MINE}: on GPU: {FIRST}"),
        (device(BAD, itself=(GOOD, BAD)), f"FAILED on {MINE}: on GPU: {FIRST} (and 1 more)"),
        (
            device(error="none", itself_error="no driver", itself=()),
            f"FAILED on {MINE}: GPU could not run the model: none (and 1 more)",
        ),
    ],
)
def test_a_verdict_beside_other_findings(found: VerifyReport, line: str) -> None:
    assert str(found.verdict_beside((), (), " here")) == line
    assert found.verdict_beside(("f",), (), "").failures == ("f", *found.failures)
    own = found.verdict.doubts if found.compared else ()
    assert found.verdict_beside((), ("d",), "").doubts == ("d", *own)


def test_the_worst_error_is_that_of_any_output() -> None:
    assert (report(GOOD, BAD).worst, report(WHOLE, GOOD).worst, report(WHOLE).worst) == (
        0.1,
        0.01,
        0,
    )
    assert (replace(report(), outputs=()).worst, replace(GOOD, shares={}).share) == (0, 0)


@pytest.mark.parametrize("name", CASES)
def test_a_verdict_follows_from_the_records(name: str) -> None:
    made, status, line = CASES[name]
    verdict = made.verdict
    assert (verdict.status, str(verdict)) == (status, line)
    assert made.ok is verdict.ok is (status == "passed")
    assert verdict.exit_status == {"passed": 0, "failed": 1}.get(status, 4)
    assert bool(made.failures) is (status == "failed")
    assert bool(verdict.doubts) or status in ("passed", "failed")
    assert made.to_text().splitlines()[0] == line
    assert repr(made).startswith(f"<VerifyReport: {line}"[:80])
    content = made.to_dict()
    assert (content["ok"], content["status"], content["verdict"]) == (made.ok, status, line)


@pytest.mark.parametrize(
    ("failures", "doubts", "uncompared", "status"),
    [
        ((), (), None, "passed"),
        (("f",), (), None, "failed"),
        (("f",), ("d",), "u", "failed"),
        ((), ("d",), None, "in doubt"),
        ((), ("d",), "u", "in doubt"),
        ((), (), "u", "not compared"),
    ],
)
def test_a_failure_decides_before_a_doubt(
    failures: tuple[str, ...], doubts: tuple[str, ...], uncompared: str | None, status: Status
) -> None:
    made = judged(failures, doubts, uncompared, inputs="a batch", worst="worst")
    assert (made.status, made.inputs, made.worst) == (status, "a batch", "worst")
    assert made.decided == {"passed": True, "failed": False}.get(status)
    assert made.exit_status == EXIT_STATUS[status]


def test_a_verdict_has_one_line_and_plain_data() -> None:
    made = Verdict("failed", "a batch", "worst", ("f", "g"), ("d",), ("tuned",))
    assert str(made) == "FAILED on a batch: f (and 1 more); tuned"
    assert made.to_dict() == {
        "ok": False,
        "verdict": str(made),
        "status": "failed",
        "exit_status": 1,
        "failures": ["f", "g"],
        "doubt": "d",
        "doubts": ["d"],
    }
    assert str(Verdict("passed")) == "Passed"


FULL = report(
    *(GOOD, replace(GOOD, name="m", apart=5), CONSTANT),
    stress=stress("doubtful", GOOD),
    left_out=LEFT,
    control=(replace(GOOD, scaled_error=0.03),),
    moves=(replace(BAD, name="m"),),
    selections=(PICKED,),
    infinities=(Inside("v", "n", "Exp", nan=1),),
)


def test_a_report_as_data_has_its_verdict_and_its_records() -> None:
    content = FULL.to_dict()
    assert list(content)[:2] == ["version", "ok"]
    assert content["notes"] == list(FULL.notes())
    assert "output c is 2 everywhere in the original, so it proves nothing" in content["notes"]
    assert content["outputs"][0]["max_abs"] == 0.25
    endless = report(replace(GOOD, max_abs=float("inf"), cosine=float("nan")))
    text = endless.to_json()
    assert text.startswith('{\n "version": 1,\n "ok": true,')
    (output,) = json.loads(text)["outputs"]
    assert (output["max_abs"], output["cosine"]) == (None, None)
