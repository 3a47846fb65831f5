"""The painting after one pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.cli import main
from amp_rewrite.errors import OptionError
from amp_rewrite.rules import Ask, Keep, Kept, Match, keep

TEXT = """g (float[4,4] x, float[4,4] w) => (float[4,4] y) {
  [first] a = MatMul(x, w) [exp] e = Exp(a) [act] h = Sigmoid(e) [last] y = MatMul(h, w) }"""


@keep("keep-last", "comes last")
def keep_last(m: Match, _: Ask) -> Kept:
    """Keep the second product."""
    yield Keep("the end", m.nodes("MatMul")[1:])


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return parse(TEXT)


def lines(model: Any, name: str, **options: Any) -> list[str]:
    return amp.explain_after(model, name, **options).splitlines()


def test_a_line_begins_with_a_star_where_the_pass_marked_something(model: onnx.ModelProto) -> None:
    title, first, exp, act, last = lines(model, "spread-deny")
    assert title == "spread-deny, 1 of 1: 2 type variables marked; 2 of 4 float16, 2 denied"
    assert first.startswith("  first/T (MatMul) float16: it is on the allow list: ")
    assert exp.startswith("* exp/T (Exp) denied: it is on the deny list: ")
    assert act == "* act/T (Sigmoid) denied: denied, reached forward from, from exp/T"
    assert last.startswith("  last/T (MatMul) float16: ")


def test_each_round_is_told(model: onnx.ModelProto) -> None:
    told = lines(model, "keep-last", rules=[keep_last])
    titles = [line for line in told if not line.startswith((" ", "*"))]
    assert [title.split(":")[0] for title in titles] == ["keep-last, 1 of 2", "keep-last, 2 of 2"]
    assert "* last/T (MatMul) float32: it comes last: the end (rule keep-last)" in told


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("keep-vanished", "it looks at models that came in 16 bits"),
        ("fill-between", "nothing became 16-bit"),
    ],
)
def test_a_pass_that_was_not_asked_is_told_so(name: str, why: str) -> None:
    model = parse("g (float[4] x) => (float[4] y) { y = Exp(x) }")
    assert lines(model, name) == [f"{name} was not asked: {why}"]


def test_what_cannot_be_told_is_an_error_of_one_line(model: onnx.ModelProto) -> None:
    with pytest.raises(OptionError, match="no pass has this name; found 'sprad'; expected 'spread"):
        amp.explain_after(model, "sprad")
    with pytest.raises(OptionError, match="name must be the name of a pass; found 3"):
        amp.explain_after(model, 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionError, match="nothing to explain; found an object of type Report"):
        amp.explain_after(amp.rewrite(model).report, "spread-deny")  # pyright: ignore
    with pytest.raises(OptionError, match="a result was made with its options already"):
        amp.explain_after(amp.rewrite(model), "spread-deny", target="cpu")


def test_the_command_tells_of_some_nodes(
    model: onnx.ModelProto, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> tuple[Any, str]:
        with pytest.raises(SystemExit) as done:
            main(["explain", str(tmp_path / "m.onnx"), *arguments])
        captured = capsys.readouterr()
        return done.value.code, captured.out + captured.err

    onnx.save(model, tmp_path / "m.onnx")
    status, out = run("act", "--after", "spread-deny")
    title, line = out.splitlines()
    assert (status, title[:11], line[:7]) == (0, "spread-deny", "* act/T")
    status, out = run("--after", "spread-denied")
    assert (status, "expected 'spread-deny'" in out) == (2, True)
    status, out = run("ac", "--after", "spread-deny")
    assert (status, "found 'ac'; expected 'act'" in out) == (2, True)
