"""The first screen: figures and causes are those of the report."""

from __future__ import annotations

from dataclasses import replace

from page_models import BRANCHES, NAMES, result_of
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.numerics.compare.verify_records import StressReport, StressResult
from amp_rewrite.page.overview import Evidence, causes, overview
from amp_rewrite.rewriting.report.gains import Sizes


def test_the_causes_count_every_node_with_floats_once() -> None:
    report = result_of(BRANCHES).report
    found = causes(report)
    assert sum(cause["count"] for cause in found) == report.summary.float_nodes
    low = sum(cause["count"] for cause in found if cause["low"])
    assert low == report.summary.nodes_converted
    kept = {c["reason"]: c["operators"] for c in found if not c["low"]}
    assert kept["deny-list"] == "1 Pow, 1 ReduceMean"


def test_the_figures_are_those_of_report_and_files() -> None:
    report = result_of(BRANCHES).report
    found = overview(report, Evidence(NAMES, sizes=Sizes(2_000, 1_500, exact=False)))
    facts = {fact["name"]: (fact["said"], fact["more"]) for fact in found["facts"]}
    assert facts["Size"] == ("about 1.5 kB", "75.0% of 2.0 kB")
    assert facts["Casts"][0] == f"{report.summary.casts_added} added, 0 removed"
    assert facts["Accuracy"][0] == "Not verified"
    assert found["holds"] is None
    assert found["headline"] == "100 % of the arithmetic in float16; 75 % of the file size"


def test_a_verification_that_fails_is_the_verdict() -> None:
    model = parse("g (float[4] x) => (float[4] y) { y = Relu(x) }")
    other = parse("g (float[4] x) => (float[4] y) { y = Neg(x) }")
    verification = amp.verify(model, other, stress=False)
    found = overview(result_of(BRANCHES).report, Evidence(NAMES, verification=verification))
    assert found["holds"] is False
    assert found["failures"] == list(verification.failures)
    assert "localise" in found["next"][0]["command"]


def test_what_is_doubtful_or_was_not_compared_is_said_as_on_the_terminal() -> None:
    model = parse(
        "g (float[1,3,8,8] x) => (float[1,3,8,8] y) { a = Abs(x) n = Neg(a) y = Relu(n) }"
    )
    verification = amp.verify(model, model, stress=False)
    stress = StressResult("sound of 16 bits", ("x [4] 0..1",), "doubtful", "output y is away")
    verification = replace(verification, stress=StressReport((stress,), 1.0, 2.0))
    found = overview(result_of(BRANCHES).report, Evidence(NAMES, verification=verification))
    shown = {*found["doubts"], *found["remarks"]}
    assert [line for line in verification.notes() if line not in shown] == []
    assert any(line.startswith("doubtful: on sound of 16 bits") for line in found["remarks"])
    (accuracy,) = (fact for fact in found["facts"] if fact["name"] == "Accuracy")
    assert accuracy["said"] == "Not compared"
    assert accuracy["more"].startswith("output y is 0 everywhere")
    assert found["holds"] is None
    assert found["next"][0]["command"].split()[1] == "verify"
