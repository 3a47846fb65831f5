"""Tables for pandas, and texts for notebooks."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from onnx import parser

import amp_rewrite as amp
from amp_rewrite.errors import OptionError

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


def test_nodes_are_rows_with_their_types_and_reasons(result: Any) -> None:
    pytest.importorskip("pandas")
    frame = result.report.to_frame()
    assert list(frame.op) == ["MatMul", "Exp", "MatMul", "Identity"]
    assert list(frame.dtype.fillna("")) == ["float16", "float32", "float16", ""]
    assert len(frame) == sum(max(1, len(node.variables)) for node in result.report.nodes)
    kept = frame[frame.dtype == "float32"]
    assert list(kept.reason) == [result.report.nodes[1].variables["T"].reason]


def test_casts_are_rows(result: Any) -> None:
    pytest.importorskip("pandas")
    frame = result.report.to_frame("casts")
    assert list(frame.name) == [cast.name for cast in result.report.casts]
    assert list(frame.consumers) == [len(cast.consumers) for cast in result.report.casts]
    assert set(frame.to) == {"float16", "float32"}


def test_a_report_of_nothing_has_tables_with_their_columns() -> None:
    pytest.importorskip("pandas")
    empty = amp.rewrite(parser.parse_model(MODEL), level="TREAT_INFER_AS_DENY", deny_ops=["MatMul"])
    frame = empty.report.to_frame("casts")
    assert len(frame) == 0
    assert " ".join(frame.columns) == "name value to producer consumers existing bytes"


def test_another_table_and_a_missing_pandas_are_errors(
    result: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OptionError, match="table"):
        result.report.to_frame("regions")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(OptionError, match="pip install pandas"):
        result.report.to_frame()


def test_an_explanation_is_text_in_a_notebook(result: Any) -> None:
    from IPython.lib.pretty import pretty  # ipykernel brings it

    name = result.report.nodes[1].name
    found = amp.explain(result, name)
    assert pretty(found) == str(found)
    assert isinstance(found, str)


def test_what_has_a_model_becomes_a_proto(result: Any) -> None:
    assert amp.to_proto(result) == amp.to_proto(result.model)
    with pytest.raises(amp.AmpError, match="not a model"):
        amp.to_proto(result.report)
