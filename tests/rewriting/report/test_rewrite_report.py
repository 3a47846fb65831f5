"""What a result is for notebooks and for other functions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from onnx import parser

import amp_rewrite as amp
from amp_rewrite.rewriting.report.records import RaisedOpset
from amp_rewrite.rewriting.report.rewrite_report import remarks

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
agraph (float[2,4] x, int64[1] i) => (float[2,4] y, int64[1] j)
<float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}>
{ m = MatMul(x, w)
  e = Exp(m)
  y = MatMul(e, w)
  j = Identity(i) }
"""


@pytest.fixture(scope="module")
def result() -> Any:
    return amp.rewrite(parser.parse_model(MODEL))


def test_what_has_a_model_becomes_a_proto(result: Any) -> None:
    assert amp.to_proto(result) == amp.to_proto(result.model)
    with pytest.raises(amp.AmpError, match="not a model"):
        amp.to_proto(result.report)


def raised_line(raised: RaisedOpset, converted: float) -> str:
    report = amp.rewrite(parser.parse_model(MODEL)).report
    summary = replace(report.summary, compute_converted=converted)
    return next(remarks(replace(report, opset=22, opset_raised=raised, summary=summary)))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (0.25, 1.0, "; 16-bit arithmetic: 100.0 %, before 25.0 %"),
        (0.998, 0.99801, ""),
        (1.0, 1.0, ""),
    ],
)
def test_a_raised_opset_says_what_it_gains_if_it_does(
    before: float, after: float, said: str
) -> None:
    line = raised_line(RaisedOpset(17, before, None), after)
    start = "converted the model from opset 17 to 22: the float32 outputs stayed the same"
    assert line == f"{start}{said}"


def test_outputs_that_were_not_compared_are_not_said_to_be_the_same() -> None:
    line = raised_line(RaisedOpset(17, 1.0, "no runtime"), 1.0)
    assert line == "converted the model from opset 17 to 22: outputs were not compared: no runtime"
