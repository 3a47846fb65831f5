"""The report: its JSON form key by key, its text, and chains of reasons."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from rewrite_text import rewritten

import amp_rewrite as amp
from amp_rewrite.errors import OptionError
from amp_rewrite.rewriting.report.explain import explain

W = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"
TEXT = f"""g (float[2,4] x, bool b) => (float[2,4] y)
  <{W}, float two = {{2}}, float[4] big = {{98000000.0,1,1,1}}, int64[1] axis = {{1}}> {{
  [dot] h = MatMul(x, w) [act] r = Relu(h) [square] s = Pow(r, two)
  [mean] m = ReduceMean(s, axis) [add] a = Add(m, h) [div] d = Div(a, r)
  [scale] k = Div(d, big)
  [branch] i = If(b) <then_branch = t () => (float[2,4] p) {{ [inner] p = MatMul(k, w) }},
                      else_branch = e () => (float[2,4] q) {{ [other] q = Identity(k) }}>
  [last] y = MatMul(i, w) }}"""


@pytest.fixture(scope="module")
def report() -> amp.Report:
    return rewritten(TEXT).report


def test_the_json_form_has_the_keys_of_version_1(report: amp.Report) -> None:
    data = json.loads(report.to_json())
    assert data == report.to_dict()
    assert {k: data[k] for k in ("version", "precision", "target", "level")} == {
        "version": 1,
        "precision": "float16",
        "target": "schema",
        "level": "default",
    }
    assert data["model"] == {"opset": 21, "nodes": 11, "functions": "none"}
    assert set(data) == {
        *("version", "precision", "target", "level", "model", "nodes", "casts", "weights"),
        *("boundaries", "summary", "input_ranges", "likely_overflow"),
        *("opset_advice", "opset_raised", "unmatched_rules", "kept", "near_end", "wide_ends"),
        *("asked", "unknown_lengths", "scaling"),
    }
    assert set(data["weights"]) == {"converted", "kept", "overflow", "underflow", "stored", "twice"}
    assert set(data["summary"]) == {
        *("nodes_converted", "float_nodes", "casts_added", "casts_removed", "compute_converted"),
        *("cast_bytes", "casts_of_unknown_size", "nodes_low_before", "operands_with_axes"),
    }
    for cast in data["casts"]:
        assert set(cast) == {
            *("value", "to", "consumers", "name", "producer", "bytes"),
        }
    for node in data["nodes"]:
        assert set(node) == {
            *("name", "op", "domain", "scope", "list", "variables", "group", "module"),
        }
        for variable in node["variables"].values():
            assert set(variable) == {"dtype", "reason", "because", "detail", "bound"}


def test_a_node_says_list_type_reason_and_origin(report: amp.Report) -> None:
    nodes = {n["name"]: n for n in report.to_dict()["nodes"]}
    assert nodes["dot"]["list"] == "allow"
    assert nodes["dot"]["variables"]["T"]["because"] is None
    assert nodes["add"]["variables"]["T"] == {
        "dtype": "float32",
        "reason": "downstream-of-deny",
        "because": "mean/T",
        "detail": None,
        "bound": None,
    }
    assert nodes["inner"]["scope"] == "branch/then_branch"
    assert nodes["other"]["scope"] == "branch/else_branch"


def test_the_figures_agree_with_the_records(report: amp.Report) -> None:
    low = [n for n in report.nodes if any(v.dtype == "float16" for v in n.variables.values())]
    assert report.summary.nodes_converted == len(low)
    assert report.summary.float_nodes == len(report.nodes)
    assert report.summary.casts_added == len(report.casts)
    assert report.summary.compute_converted == 1
    assert (report.weights.converted, report.weights.kept) == (1, 2)


def test_the_counts_of_what_stays_float32_agree_with_the_records(report: amp.Report) -> None:
    stays = [
        (next(iter(n.variables.values())).reason, n.op)
        for n in report.nodes
        if n.op != "Constant" and all(v.dtype == "float32" for v in n.variables.values())
    ]
    kept = {(reason, op): n for reason, ops in report.kept.items() for op, n in ops.items()}
    assert kept == dict(Counter(stays))


def test_casts_say_what_they_move() -> None:
    text = f"""g (float[2,4] x, float[N,4] n) => (float[2,4] y, float[N,4] z)
      <{W}, float[2,4] h> {{ [dot] h = MatMul(x, w) [end] y = Exp(h) [free] z = MatMul(n, w) }}"""
    report = rewritten(text).report
    assert {c.value: (c.producer, c.bytes) for c in report.casts} == {
        "x": (None, 8 * 6),
        "h": ("dot/T", 8 * 6),
        "n": (None, None),
        "z": ("free/T", None),
    }
    assert (report.summary.cast_bytes, report.summary.casts_of_unknown_size) == (96, 2)
    assert "casts move 96 bytes per run (2 of unknown size not counted" in report.to_text()


def test_a_cast_of_a_constant_moves_nothing_once_the_model_is_loaded() -> None:
    text = f"g (float[2,4] x) => (float[2,4] h) <{W}> {{ h = MatMul(x, w) }}"
    report = rewritten(text, weights="cast").report
    assert {c.value: c.bytes for c in report.casts} == {"x": 48, "w": 0, "h": 48}


def test_every_because_names_a_vertex_of_the_report(report: amp.Report) -> None:
    known = {f"{n.name}/{v}" for n in report.nodes for v in n.variables}
    because = {v.because for n in report.nodes for v in n.variables.values()} - {None}
    assert because
    assert because <= known
    consumers = {c for cast in report.casts for c in cast.consumers}
    assert consumers <= known | {"y"}


def test_explain_follows_a_chain_to_its_origin(report: amp.Report) -> None:
    assert explain(report, "div").startswith(
        "div (Div) stays float32: denied, reached forward from "
    )
    assert "deny list: " in explain(report, "div")
    assert explain(report, "div").endswith(" through add")
    assert explain(report, "inner").startswith("inner (MatMul in branch/then_branch) becomes")


def test_explain_names_the_constant_that_does_not_fit() -> None:
    text = TEXT.replace("[scale] k = Div(d, big)", "n = MatMul(d, w) [scale] k = Div(n, big)")
    assert explain(rewritten(text), "scale") == (
        "scale (Div) stays float32: a constant does not fit: constant big reaches 9.8e+07, "
        "float16 ends at 65504"
    )


def test_sizes_of_casts_follow_from_lengths_of_free_dimensions() -> None:
    nodes = "h = MatMul(x, w) s = Softmax(h) l = Log(s) y = MatMul(l, w)"
    result = rewritten(f"g (float[N,4] x) => (float[N,4] y) <{W}> {{ {nodes} }}")
    assert result.report.summary.casts_of_unknown_size == len(result.report.casts) > 0
    summary = result.report_of_sizes({"N": 3}).summary
    assert summary.casts_of_unknown_size == 0
    assert summary.cast_bytes == len(result.report.casts) * 3 * 4 * (4 + 2)
    with pytest.raises(OptionError, match="found 'M'; expected 'N'"):
        result.report_of_sizes({"M": 3})
    with pytest.raises(OptionError, match="impossible length of 'N'; found -1"):
        result.report_of_sizes({"N": -1})
