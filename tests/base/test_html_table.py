"""Tables in a notebook, and texts that stay texts there."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import amp_rewrite as amp
from amp_rewrite.base.printable import html_table
from amp_rewrite.numerics.folder_report import FolderReport, ModelEntry

MODEL = """<ir_version: 9, opset_import: ["" : 18]>
  g (float[2,4] x, float[4,4] w) => (float[2,4] y) {
  y = MatMul(x, w) }"""


def test_cells_are_text() -> None:
    made = html_table("a<b", ("name",), [("<script>\x1b",)])
    assert made == (
        "<table><caption>a&lt;b</caption><tr><th>name</th></tr>"
        "<tr><td>&lt;script&gt;\\x1b</td></tr></table>"
    )


def test_results_have_tables() -> None:
    model = onnx.parser.parse_model(MODEL)
    ones = {"x": np.ones((2, 4), np.float32), "w": np.ones((4, 4), np.float32)}
    assert "<td>y</td><td>4</td>" in amp.calibrate(model, ones)._repr_html_()
    summary = amp.rewrite(model).report.summary
    assert "<td>nodes_converted</td><td>1</td>" in summary._repr_html_()
    entry = ModelEntry("m.onnx", None, "failed", "no <model>")
    folder = FolderReport("f", None, (entry,), {})
    assert "<td>failed</td><td>no &lt;model&gt;</td>" in folder._repr_html_()


def test_a_text_is_returned_in_a_notebook_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    model = onnx.parser.parse_model(MODEL)
    assert "nodes" in amp.rewrite(model).report.to_text()
    assert amp.verify(model, model).to_text().startswith("Passed on ")
    assert capsys.readouterr().out == ""
