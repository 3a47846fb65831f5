"""What was gained, in words."""

from __future__ import annotations

import pytest
from rewrite_text import rewritten

from amp_rewrite.rewriting.report.gains import Sizes, headline, planned_size
from amp_rewrite.rewriting.report.rewrite_report import Report

W = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"
ONE = f"g (float[2,4] x) => (float[2,4] y) <{W}> {{ [dot] y = MatMul(x, w) }}"


def said_of(report: Report, sizes: Sizes | None = None) -> str:
    return headline(report.precision, report.summary, sizes)


TWO = f"""g (float[2,4] x) => (float[2,4] y) <{W}, float[2,4] h, float[2,4] e> {{
  [dot] h = MatMul(x, w) e = Exp(h) [other] y = MatMul(e, w) }}"""


@pytest.mark.parametrize(
    ("after", "said"),
    [(500, "half the file size"), (509, "half the file size"), (530, "53 % of the file size")],
)
def test_the_size_is_told(after: int, said: str) -> None:
    text = said_of(rewritten(ONE).report, Sizes(1000, after, exact=True))
    assert text == f"100 % of the arithmetic in float16; {said}"


def test_a_part_never_reads_as_the_whole() -> None:
    report = rewritten(TWO, deny_nodes=["other"]).report
    assert said_of(report) == "50 % of the arithmetic in float16"
    assert said_of(report, Sizes(100_000, 99_999, exact=True)).endswith(
        "; 100.0 % of the file size"
    )


def test_nothing_is_said_to_be_nothing() -> None:
    report = rewritten("g (float[2] x) => (float[2] y) { y = Exp(x) }").report
    assert said_of(report) == "nothing changed: no part of the model can compute in float16"


def test_what_left_nothing_is_said_instead_where_it_is_known() -> None:
    report = rewritten("g (float[2] x) => (float[2] y) { y = Exp(x) }").report
    said = headline(report.precision, report.summary, None, "the budget ended")
    assert said == "the budget ended"


def test_the_planned_size_is_less_by_what_the_weights_save() -> None:
    result = rewritten(ONE)
    assert planned_size(1000, result.plan) == Sizes(1000, 1000 - 16 * 2, exact=False)
    both = rewritten(TWO, deny_nodes=["other"])
    assert planned_size(1000, both.plan).after == 1000 + 16 * 2  # a copy in either type
