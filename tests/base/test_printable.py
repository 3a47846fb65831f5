"""Names of a model are shown to a reader; nothing in them acts on a terminal."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import amp_rewrite as amp
from amp_rewrite.base.printable import html_table, printable
from amp_rewrite.errors import AmpError
from amp_rewrite.numerics.folder_report import FolderReport, ModelEntry


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\rc\td", r"a\nb\rc\td"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\x00b\x7f\x9b", r"a\x00b\x7f\x9b"),
        ("abc\u202edef\u2066", r"abc\u202edef\u2066"),
        ("one\u2028two\u2029", r"one\u2028two\u2029"),
        ("\udc80", r"\udc80"),
    ],
)
def test_what_acts_is_spelled(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_an_error_is_one_line_whatever_the_names() -> None:
    error = AmpError("bad\nname", where="\x1b[2Jf\u202e", found="a\r\nb\x00", remedy="c\u2028d")
    assert str(error) == r"\x1b[2Jf\u202e: bad name; found a b\x00; c d"
    assert error.found == "a\r\nb\x00"


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
