"""What notebooks show of results: tables of text, whatever the names in them hold."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import onnx
import pytest

import amp_rewrite as amp
from amp_rewrite.base.html_table import HtmlTable, to_html

TRAINED = """<ir_version: 8, opset_import: ["": 17]>
m (float[2,4] x) => (float loss) <float[4,1] w = {1, 2, 3, 4}> {
  y = MatMul(x, w) loss = ReduceMean<keepdims = 0>(y) }"""
NAMES = ("<script>alert(1)</script>", "a\x1b[31m\x00b", "\"x\" onload='y' &amp;", "\u202eabc")
TAGS = {"div", "strong", "table", "thead", "tbody", "tr", "th", "td"}


class Shown(HTMLParser):
    """What a browser makes of a piece of HTML.

    Attributes:
        tags: Its tags.
        attributes: All attributes of them.
        text: What is read.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[tuple[str, str | None]] = set()
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= set(attrs)

    def handle_data(self, data: str) -> None:
        self.text += f"{data}|"


def shown(result: Any) -> Shown:
    """Return what a notebook shows of an object; require that it is nothing but a table."""
    found = Shown(result._repr_html_())
    assert set(found.tags) <= TAGS
    assert {name for name, _ in found.attributes} <= {"style"}
    assert not any(c in found.text for c in "\x1b\x00\u202e")
    return found


def model(name: str) -> onnx.ModelProto:
    """Return a model whose nodes, output and an unknown operator have a name."""
    helper, float_ = onnx.helper, onnx.TensorProto.FLOAT
    weight = onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], f"first{name}"),
        helper.make_node("Exp", ["h"], [f"y{name}"], f"second{name}"),
    ]
    ends = [helper.make_tensor_value_info(n, float_, [2, 4]) for n in ("x", f"y{name}")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def test_a_result_shows_what_was_gained_and_why_the_rest_stayed() -> None:
    result = amp.rewrite(model(""))
    text = shown(result).text
    assert text == shown(result.report).text
    assert "100 % of the arithmetic in float16|1 of 2 float32 nodes" in text
    assert "|1|Exp|loses too much accuracy in float16|deny-list|" in text


def test_a_verification_shows_the_verdict_and_what_fails() -> None:
    before = model("")
    x = np.random.default_rng(0).uniform(-1, 1, (2, 4)).astype(np.float32)
    good = amp.verify(before, amp.rewrite(before).model, {"x": x})
    assert shown(good).text.startswith("Passed on 1 batch of your data|float16, emulated")
    assert "|y|" in shown(good).text
    bad = amp.verify(before, amp.rewrite(before).model, {"x": x}, rtol=0, atol=1e-12)
    assert shown(bad).text.startswith("FAILED|")
    assert "failed: output y" in shown(bad).text


@pytest.mark.parametrize("name", NAMES)
def test_names_are_text(name: str) -> None:
    before = model(name)
    report = amp.verify(before, amp.rewrite(before).model, seed=1, stress=False)
    assert "script" not in shown(report).tags
    rules = amp.OpLists.from_names(deny=[f"{name}::{name}"])
    assert shown(rules).tags.count("tr") == 2
    table = HtmlTable((name,), [(name,)])
    assert Shown(to_html(name, [name], [table])).tags == [
        *("div", "strong", "div", "table", "thead", "tr", "th", "tbody", "tr", "td"),
    ]


def test_op_lists_show_which_operators_are_on_which_list() -> None:
    text = shown(amp.OpLists.from_names(allow=["MatMul", "Conv"], deny=["com.x::Exp"])).text
    assert text.startswith("op lists for float16, target schema, level default|")
    assert "|allow|2|Conv, MatMul|deny|1|com.x::Exp|" in text


def test_a_step_and_its_session_show_their_states() -> None:
    loss = amp.value(amp.load(onnx.parser.parse_model(TRAINED)), "loss")
    op = amp.optimizers.Adam(0.1).minimize(loss)
    text = shown(op).text
    assert "training step: loss" in text
    assert "|variable|" in text
    with amp.TrainingSession(op) as session:
        assert "training session, after 0 steps|" in shown(session).text
        assert "|variable|" in shown(session).text
    assert "training session, closed|" in shown(session).text


def test_long_tables_are_cut_and_numbers_are_grouped() -> None:
    html = to_html("many", (), [HtmlTable(("n",), [(1000 * i,) for i in range(1050)])])
    found = Shown(html)
    assert found.tags.count("td") == 20
    assert "|19,000|and 1,030 more|" in found.text
    assert Shown(to_html("none", (), [HtmlTable(("n",), [])])).tags == ["div", "strong"]
