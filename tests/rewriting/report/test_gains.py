"""What was gained, in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from rewrite_text import parse, rewritten

import amp_rewrite as amp
from amp_rewrite.rewriting.report.gains import Sizes, headline, sizes_of
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


def test_the_planned_size_is_close_to_that_of_the_file(tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    proto = parse("g (float[2,64] x) => (float[2,64] y) { y = MatMul(x, w) }")
    proto.graph.initializer.append(weight)
    before, after = tmp_path / "m.onnx", tmp_path / "low.onnx"
    onnx.save(proto, before)
    result = amp.rewrite(before)
    result.save(after)
    planned, exact = (
        sizes_of(before, result.flat, result.plan, None),
        sizes_of(before, result.flat, result.plan, after),
    )
    assert not planned.exact
    assert exact.exact
    assert exact.after == after.stat().st_size
    assert abs(planned.after - exact.after) < 1_000
    assert planned.before == exact.before


def test_data_files_that_a_rewrite_writes_are_counted(tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    proto = parse("g (float[2,64] x) => (float[2,64] y) { y = MatMul(x, w) }")
    proto.graph.initializer.append(weight)
    (tmp_path / "low").mkdir()
    before, after = tmp_path / "m.onnx", tmp_path / "low" / "m.onnx"
    onnx.save(proto, before, save_as_external_data=True, location="m.data", size_threshold=0)
    result = amp.rewrite(before)
    result.save(after)
    written = sum(path.stat().st_size for path in after.parent.iterdir())
    assert sizes_of(before, result.flat, result.plan, after).after == written


GROWS = "the file is larger than the original: "


def test_a_file_that_grows_without_casts_says_so() -> None:
    lines = [*rewritten(ONE, keep_io_types=False).report.lines(Sizes(1000, 1520, exact=True))]
    said = "metadata takes more than 1 converted constant can save; keep the original"
    assert f"{GROWS}{said} if size matters" in lines


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ONE, "2 added casts take more than 1 converted constant can save; keep the original"),
        (
            f"g (float[2,4] x) => (float[2,4] y, float[4,4] z) <{W}> "
            "{ y = MatMul(x, w) z = Exp(w) }",
            "2 added casts take more than 1 converted constant can save; 1 of them stored in both "
            "types; keep the original",
        ),
    ],
)
def test_a_file_that_grows_says_why_and_what_to_do(text: str, said: str) -> None:
    report = rewritten(text).report
    lines = [*report.lines(Sizes(1000, 1520, exact=True))]
    assert f"{GROWS}{said} if size matters" in lines
    assert not any(GROWS in line for line in report.lines(Sizes(1000, 999, exact=True)))
