"""Rules that users hand in as objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite import RuleNode
from amp_rewrite.errors import OptionError
from amp_rewrite.numerics.budget.tolerance import Tolerance

MODEL = """g (float[N,8] x) => (float[N,4] y) <float[8,4] w, float[4,4] k> {
  [first] a = MatMul(x, w) [act] h = LeakyRelu<alpha = 0.5>(a) [clip] c = Clip(h, , m)
  [last] y = MatMul(c, k) }"""


class Keep:
    """A rule made of a function."""

    def __init__(self, keep: Callable[[RuleNode], Any]) -> None:
        self.keep = keep


class KeepWide:
    """Keeps products with weights of eight rows."""

    def keep(self, node: RuleNode) -> str | None:
        weights = node.inputs[1] if node.op_type == "MatMul" else None
        if weights is None or weights.shape is None or weights.shape[0] != 8:
            return None
        return "eight\n rows"


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    parsed, draw = parse(MODEL), np.random.default_rng(0)
    for name, shape in {"w": (8, 4), "k": (4, 4), "m": ()}.items():
        held = draw.uniform(0.5, 1, shape).astype(np.float32)
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(held, name))
    return parsed


DATA = [{"x": np.linspace(0, 1, 16, dtype=np.float32).reshape(2, 8)}]
WHY = "eight rows (rule KeepWide)"


def test_the_reason_of_a_rule_stands_in_report_and_explanation(model: onnx.ModelProto) -> None:
    result = amp.rewrite(model, rules=[KeepWide()])
    record = next(n for n in result.report.nodes if n.name == "first").variables["T"]
    assert (record.dtype, record.reason, record.detail) == ("float32", "rule:KeepWide", WHY)
    assert WHY in amp.explain(result, "first")
    assert WHY in amp.explain(model, "first", rules=[KeepWide()])
    assert amp.rewrite(model).report.summary.nodes_converted == 4
    assert result.report.summary.nodes_converted == 2  # nor the one that would only follow it


def test_the_first_rule_that_keeps_a_node_gives_the_reason(model: onnx.ModelProto) -> None:
    rules = [Keep(lambda _: None), KeepWide(), Keep(lambda n: f"all, {n.name} too")]
    records = amp.rewrite(model, rules=rules).report.nodes
    assert [n.variables["T"].detail for n in records] == [
        WHY,
        *(f"all, {name} too (rule Keep)" for name in ("act", "clip", "last")),
    ]


def test_a_rule_sees_a_node_and_what_is_around_it(model: onnx.ModelProto) -> None:
    seen: list[RuleNode] = []
    amp.rewrite(model, rules=[Keep(seen.append)])
    first, act, clip, last = seen
    assert [(n.name, n.op_type, n.domain) for n in (first, act)] == [
        ("first", "MatMul", ""),
        ("act", "LeakyRelu", ""),
    ]
    assert act.attributes == {"alpha": 0.5}
    x, w = first.inputs
    assert x is not None
    assert w is not None
    assert (x.name, x.dtype, x.shape, x.constant, x.maker) == (
        "x",
        "float32",
        (None, 8),
        None,
        None,
    )
    assert w.constant is not None
    assert w.constant.shape == w.shape == (8, 4)
    assert [v and v.name for v in clip.inputs] == ["h", None, "m"]
    read = last.inputs[0]
    assert read is not None
    assert read.maker is not None
    assert read.maker.name == "clip"
    assert [n.name for n in first.outputs[0].readers] == ["act"]
    assert repr(clip) == "<RuleNode clip: Clip>"
    assert repr(x) == "<RuleValue x: float32 (None, 8)>"


def test_a_rule_cannot_change_the_model(model: onnx.ModelProto) -> None:
    def zero(node: RuleNode) -> None:
        for value in node.inputs:
            if value is not None and value.constant is not None:
                value.constant[...] = 0

    plain, ruled = amp.rewrite(model), amp.rewrite(model, rules=[Keep(zero)])
    texts = [amp.to_proto(r.model).SerializeToString() for r in (plain, ruled)]
    assert texts[0] == texts[1]


def test_nodes_in_subgraphs_are_asked_about() -> None:
    text = """g (float[4,4] x, bool b) => (float[4,4] y) {
      y = If(b) <then_branch = t () => (float[4,4] p) { [inner] p = MatMul(x, x) },
                 else_branch = e () => (float[4,4] q) { [other] q = MatMul(x, x) }> }"""
    rule = Keep(lambda node: "inside" if node.name == "inner" else None)
    found = {n.name: n for n in amp.rewrite(parse(text), rules=[rule]).report.nodes}
    assert found["inner"].variables["T"].detail == "inside (rule Keep)"
    assert found["other"].variables["T"].reason != "rule:Keep"


def test_whatever_rewrites_takes_rules(model: onnx.ModelProto) -> None:
    rules, low = [KeepWide()], amp.rewrite(model).model

    def kept(report: amp.Report) -> bool:
        first = next(n for n in report.nodes if n.name == "first")
        return first.variables["T"].detail == WHY

    assert kept(amp.convert(model, rules=rules).report)
    assert kept(amp.rewrite(model, amp.calibrate(model, DATA, rules=rules).options).report)
    tuning = amp.tune(model, DATA, Tolerance("max-relative", 0.01), rules=rules)
    assert kept(amp.rewrite(model, tuning.options).report)
    budget = amp.error_budget(model, DATA, rules=rules)
    assert "first" not in {each.node for each in budget.contributions if each.rounded}
    assert f"raised: MatMul first eight rows ({WHY})" in amp.repair(low, rules=rules).to_text()
    assert not amp.check(low, run=False, rules=rules).ok


def test_a_step_takes_rules() -> None:
    text = """g (float[2,4] x) => (float loss) <float[4,4] w> {
        h = MatMul(x, w) r = Relu(h) q = MatMul(r, w) loss = ReduceMean<keepdims = 0>(q) }"""
    trained = parse(text)
    weights = onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    trained.graph.initializer.append(weights)
    loss = amp.value(amp.load(trained), "loss")
    op = amp.optimizers.GradientDescent(0.1).minimize(loss)

    def casts(**options: Any) -> int:
        step = amp.build_step(op, precision="bfloat16", **options)
        return [node.op_type for node in step.graph].count("Cast")

    rule = Keep(lambda node: "a product" if node.op_type in ("MatMul", "Gemm") else None)
    assert casts() > casts(rules=[rule]) == 1  # the mask of Relu


EXPECTED = r"expected objects with a method keep\(node\), in a list"


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (KeepWide(), f"rules must be a list; found KeepWide; {EXPECTED}"),
        ("KeepWide", f"rules must be a list; found 'KeepWide'; {EXPECTED}"),
        (3, f"rules must be a list; found 3; {EXPECTED}"),
        ([KeepWide], r"must be an object; found the class KeepWide; pass an object of it: KeepW"),
        ([lambda _: None], "a rule has no method keep; found an object of type function"),
        ([KeepWide(), None], "a rule has no method keep; found an object of type NoneType"),
    ],
)
def test_what_is_no_rule_is_refused(rules: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        amp.RewriteOptions(rules=rules)


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (lambda _: 1 / 0, r"first \(MatMul\): rule Keep fails; found ZeroDivisionError: division"),
        (lambda: None, r"rule Keep fails; found TypeError: .*; mend its method keep"),
        (lambda node: node.kind, "rule Keep fails; found AttributeError: 'RuleNode' object has no"),
        (lambda _: True, "the reason of rule Keep is not a text; found True; expected why"),
        (lambda _: " ", "the reason of rule Keep is not a text; found ' '; expected why"),
    ],
)
def test_a_rule_that_fails_is_an_error_of_one_line(
    model: onnx.ModelProto, keep: Callable[..., Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message) as raised:
        amp.rewrite(model, rules=[Keep(keep)])
    assert "\n" not in str(raised.value)
