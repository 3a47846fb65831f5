"""Rules of users that ask about the model, and how reports tell what users asked for."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.errors import OptionError
from amp_rewrite.numerics.budget.tolerance import Tolerance
from amp_rewrite.page.overview import causes
from amp_rewrite.rewriting.paint.paint_pass import PaintPass
from amp_rewrite.rewriting.paint.passes.follow_allow import follow_allow
from amp_rewrite.rules import Ask, Keep, Kept, Match, Need, PassReason, Stage, keep

TEXT = """g (float[4,4] x, float[4,4] w) => (float[4,4] y) {{
  [first] a = MatMul(x, w) {between} [last] y = MatMul({read}, w) }}"""
SPELLINGS = {
    "[act] h = Sigmoid(a)": "h",
    "[act] h = Sigmoid(a) t = Transpose(h) i = Identity(t)": "i",
    "[act] h = Sigmoid(a) n = Neg(h)": "n",
}


@keep("keep-squashed", "feeds a product on our device")
def keep_squashed(m: Match, _: Ask) -> Kept:
    """Keep a Sigmoid that a product reads."""
    for product in m.nodes("MatMul"):
        maker = m.maker(m.base(m.read(product)[0]))
        if m.is_a(maker, "Sigmoid"):
            yield Keep(f"{m.name(product)} reads it", [maker])


@keep("keep-sigmoids", "ours", Stage.GIVEN, overrules=True)
def keep_sigmoids(m: Match, _: Ask) -> Kept:
    """Keep each Sigmoid."""
    yield Keep(None, m.nodes("Sigmoid"))


def model(between: str = "[act] h = Sigmoid(a)", read: str = "h") -> onnx.ModelProto:
    return parse(TEXT.format(between=between, read=read))


def told(report: amp.Report, node: str = "act") -> tuple[str, str | None]:
    record = next(n for n in report.nodes if n.name == node).variables["T"]
    return record.reason, record.detail


@pytest.mark.parametrize("between", SPELLINGS)
def test_a_rule_finds_what_is_computed_and_gives_its_reason(between: str) -> None:
    result = amp.rewrite(model(between, SPELLINGS[between]), rules=[keep_squashed])
    assert told(result.report) == ("rule:keep-squashed", "last reads it (rule keep-squashed)")
    said = "feeds a product on our device"
    assert f"act (Sigmoid) stays float32: it {said}: last" in amp.explain(result, "act")
    assert f"{said} (rule:keep-squashed)" in result.report.to_text()
    assert said in [cause["said"] for cause in causes(result.report)]
    nodes = json.loads(result.report.to_json())["nodes"]
    assert "rule:keep-squashed" in [v["reason"] for n in nodes for v in n["variables"].values()]
    assert result.report.summary.nodes_converted == len(nodes) - 1


def test_other_models_are_left_alone() -> None:
    plain = model("[act] h = Relu(a)")
    ruled, free = amp.rewrite(plain, rules=[keep_squashed]), amp.rewrite(plain)
    assert ruled.report.to_json() == free.report.to_json()


def test_a_reason_may_have_its_own_words_and_a_rule_may_be_asked_before_painting() -> None:
    reason = PassReason("ours", "our {precision} device", "is ours for {target}")

    @keep("keep-ours", reason, Stage.GIVEN, needs=Need.NOTHING)
    def keep_ours(m: Match, _: Ask) -> Kept:
        yield Keep(None, m.nodes("Sigmoid"))

    result = amp.rewrite(model(), rules=[keep_ours, keep_squashed], target="cuda")
    assert told(result.report) == ("ours", "kept (rule keep-ours)")
    assert "stays float32: our float16 device: kept" in amp.explain(result, "act")
    assert "ours for cuda (ours)" in result.report.to_text()


def test_the_user_allows_by_name_what_a_rule_would_keep() -> None:
    report = amp.rewrite(model(), rules=[keep_squashed], allow_nodes=["act"]).report
    assert told(report)[0] == "allow-list"


def test_a_danger_of_a_rule_is_told_and_repaired() -> None:
    low = amp.rewrite(model()).model
    found = amp.check(low, run=False, rules=[keep_squashed])
    assert [danger.node for danger in found.dangers] == ["act"]
    assert "raised: Sigmoid act" in amp.repair(low, rules=[keep_squashed]).to_text()


def test_whatever_rewrites_takes_rules() -> None:
    rules, source = [keep_squashed], model()
    data = [{name: np.eye(4, dtype=np.float32) for name in "xw"}]
    tuning = amp.tune(source, data, Tolerance("max-relative", 0.01), rules=rules)
    calibrated = amp.calibrate(source, data, rules=rules)
    for report in (
        amp.convert(source, rules=rules).report,
        amp.rewrite(source, calibrated.options).report,
        amp.rewrite(source, tuning.options).report,
    ):
        assert told(report)[0] == "rule:keep-squashed"


@pytest.mark.parametrize(
    ("options", "reason", "words"),
    [
        ({"rules": [keep_sigmoids]}, "rule:keep-sigmoids", "ours"),
        ({"deny_ops": ["Sigmoid"]}, "deny-op", "kept by --deny-op"),
        ({"deny_nodes": ["a?t"]}, "node-rule", "kept by a node rule"),
        ({"preserve": ["act"]}, "preserved", "kept by --preserve"),
    ],
)
def test_what_the_user_asked_for_is_told_whatever_else_could_be(
    options: dict[str, Any], reason: str, words: str
) -> None:
    for between in ("[act] h = Sigmoid(a)", "e = Exp(a) [act] h = Sigmoid(e)"):  # behind deny, too
        for target in ("cuda", "cpu", "schema"):
            result = amp.rewrite(model(between), target=target, **options)
            assert told(result.report)[0] == reason
            assert f"{words} ({reason})" in result.report.to_text()


def test_an_allow_operator_that_the_user_denies_is_told_so_where_nothing_is_left() -> None:
    result = amp.rewrite(model(), deny_ops=["MatMul"])
    assert {told(result.report, node)[0] for node in ("first", "last")} == {"deny-op"}
    line = "first (MatMul) stays float32: the user asked for it with the option --deny-op"
    assert amp.explain(result, "first") == line


def test_lists_by_name_and_the_environment_are_the_users_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AMP_REWRITE_DENYLIST_ADD", "Sigmoid")
    monkeypatch.setenv("AMP_REWRITE_INFERLIST_REMOVE", "Sigmoid")
    result = amp.rewrite(model())
    assert told(result.report) == ("denied-by-user", "added by AMP_REWRITE_DENYLIST_ADD")
    assert "of an operator that your own list denies" in result.report.to_text()


def test_a_list_file_of_the_user_says_why_and_where(tmp_path: Path) -> None:
    text = """
        version: 1
        precision: float16
        target: any
        extend: float16_cuda
        remove: [{op: Sigmoid, list: infer, why: moved}]
        deny: [{op: Sigmoid, why: ours reach 300}]
    """
    file = tmp_path / "own.yaml"
    file.write_text(textwrap.dedent(text))
    said = told(amp.rewrite(model(), lists=file).report)
    assert said == ("denied-by-user", f"ours reach 300 ({file}:7)")


@keep("keep-nothing", "fails")
def no_keep(m: Match, _: Ask) -> Any:
    """Yield what is no Keep."""
    yield m.nodes("Sigmoid")


@keep("keep-broken", "fails")
def broken(m: Match, _: Ask) -> Kept:
    """Fail."""
    yield Keep(m.name(10**9), [])


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([no_keep], "rule keep-nothing fails; found AttributeError: 'list' object has no"),
        ([broken], "rule keep-broken fails; found IndexError: list index out of range; mend it"),
        ([keep_squashed, keep_squashed], "two rules have one name; found keep-squashed, keep-sq"),
        (
            [follow_allow],
            "rule follow-allow is a pass of another kind; expected a rule of",
        ),
        (keep_squashed, "rules must be a list; found keep-squashed; expected functions under"),
        ("keep", "rules must be a list; found 'keep'; expected functions under"),
        ([lambda m, ask: None], "a rule has no decorator; found an object of type function"),
    ],
)
def test_a_rule_that_fails_or_is_none_is_an_error_of_one_line(
    rules: list[PaintPass], message: str
) -> None:
    with pytest.raises(OptionError, match=message) as raised:
        amp.rewrite(model(), rules=rules)
    assert "\n" not in str(raised.value)
