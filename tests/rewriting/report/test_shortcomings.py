"""Rules about single nodes that match nothing: a warning, a note in the report, nothing else."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.errors import AmpWarning

MODEL = parse("""g (float[2,4] x, int64[4] i) => (float[2,4] y, int64[4] j)
  <float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> {
  [norm_dot] h = MatMul(x, w) [norm_act] y = Relu(h) [count] j = Add(i, i) }""")


def rules(folder: Path, *entries: str) -> Path:
    path = folder / "mine.yaml"
    head = "version: 1\nprecision: float16\ntarget: cuda\nextend: float16_cuda\nnodes:\n"
    path.write_text(head + "".join(f"  - {{{e}, list: deny, why: w}}\n" for e in entries), "utf-8")
    return path


@pytest.mark.parametrize(
    ("entry", "about", "remedy"),
    [
        ("node: norm_dto", "norm_dto", "did you mean 'norm_dot' or 'norm_act'?"),
        ("node: zzz", "zzz", "`amp-rewrite explain MODEL` lists the node names"),
        ("node: norm_dot, variable: U", "norm_dot/U", "of node 'norm_dot' T is float32"),
        ("node: count, variable: T", "count/T", "of node 'count' nothing is float32"),
    ],
)
def test_a_rule_that_matches_nothing_is_named(
    tmp_path: Path, entry: str, about: str, remedy: str
) -> None:
    path = rules(tmp_path, "node: norm_act", entry)
    line = f"1 node rule matches no node of the model: {about} ({path}:7)"
    with pytest.warns(amp.AmpWarning) as warned:
        result = amp.rewrite(MODEL, lists=path)
    assert [str(w.message) for w in warned] == [f"{line}; {remedy}"]
    assert [f"{rule}" for rule in result.report.unmatched_rules] == [f"{about} ({path}:7)"]


def test_only_the_first_rules_are_shown_and_the_json_has_all(tmp_path: Path) -> None:
    path = rules(tmp_path, *(f"node: n{i}" for i in range(5)))
    with pytest.warns(amp.AmpWarning, match=r"^5 node rules .*n0 .*n1 .*n2 \(.*:8\) and 2 more; "):
        report = amp.rewrite(MODEL, lists=path).report
    assert report.to_dict()["unmatched_rules"] == [
        {"node": f"n{i}", "variable": None, "where": f"{path}:{i + 6}"} for i in range(5)
    ]


def test_rules_that_match_and_lists_without_rules_are_silent(tmp_path: Path) -> None:
    path = rules(tmp_path, "node: norm_dot, variable: T", "node: count")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for lists in (path, None):
            assert amp.rewrite(MODEL, lists=lists).report.unmatched_rules == ()


def with_default(ir_version: int, size: int) -> onnx.ModelProto:
    """Return a model whose weight is an input as well."""
    model = onnx.parser.parse_model(
        f'<ir_version: {ir_version}, opset_import: ["" : 13]> g (float[2,{size}] x, '
        f"float[{size},{size}] w) => (float[2,{size}] y) {{ y = MatMul(x, w) }}"
    )
    weight = np.full((size, size), 0.25, np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return model


@pytest.mark.parametrize("ir_version", [4, 8, 10])
def test_weights_that_are_inputs_are_told_with_the_remedy(ir_version: int) -> None:
    model = with_default(ir_version, 32)
    with pytest.warns(AmpWarning, match="1 weight is an input of the model with a default .w., "):
        result = amp.rewrite(model)
    assert {c.value for c in result.report.casts} >= {"w"}


def test_constants_and_short_defaults_are_not_told() -> None:
    amp.rewrite(with_default(8, 4))
    amp.rewrite(with_default(3, 32))
    constant = with_default(8, 32)
    del constant.graph.input[1]
    amp.rewrite(constant)
