"""The table of casts: the dearest first, with what disagrees at their ends."""

from __future__ import annotations

import pytest
from rewrite_text import rewritten

import amp_rewrite as amp
from amp_rewrite.errors import OptionError
from amp_rewrite.rewriting.report.cast_table import explain_casts

W = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"
TEXT = f"""g (float[N,4] x, float[batch,2,4] z) => (float[N,4] y, float[batch,2,4] u) <{W}> {{
  [square] a = Pow(x, x) [dot] h = MatMul(a, w) [power] y = Pow(h, h) [free] u = MatMul(z, w) }}"""


@pytest.fixture(scope="module")
def result() -> amp.RewriteResult:
    return rewritten(TEXT)


def test_what_depends_on_free_dimensions_is_unknown(result: amp.RewriteResult) -> None:
    lines = explain_casts(result.report_of_sizes()).splitlines()
    assert lines[0] == "4 casts: 0 bytes per run (4 of unknown size not counted)"
    assert all(line.split()[0] == "unknown" for line in lines[1:13:3])


def test_casts_are_listed_with_their_ends_and_reasons(result: amp.RewriteResult) -> None:
    lines = explain_casts(result.report_of_sizes({"N": 16, "batch": 2})).splitlines()
    assert lines[0] == "4 casts: 960 bytes per run"
    assert [line.split()[0] for line in lines[1:13:3]] == ["384", "384", "96", "96"]
    first = [" ".join(line.split()) for line in lines[1:4]]
    assert first == [
        "384 a-CastToFp16-0-AutoMixedPrecision",
        "square/T -> dot/T",
        "dot/T is low: it is on the allow list; square/T stays float32: it is on the deny list",
    ]
    text = " ".join(" ".join(lines).split())
    assert "z -> free/T free/T is low: it is on the allow list; z keeps its type" in text
    assert "free/T -> u free/T is low: it is on the allow list; u keeps its type" in text


def test_regions_are_listed_with_what_they_cost_and_save(result: amp.RewriteResult) -> None:
    text = explain_casts(result.report_of_sizes({"N": 16, "batch": 2}))
    lines = [" ".join(line.split()) for line in text.splitlines()[13:]]
    assert lines == [
        "2 regions; what their casts move, what they save, first vertex",
        "768 288 dot/T",
        "1 vertex, 2 casts, 256 multiply-accumulates",
        "192 96 free/T",
        "1 vertex, 2 casts, 64 multiply-accumulates",
    ]


def test_the_longest_lists_are_cut(result: amp.RewriteResult) -> None:
    lines = explain_casts(result.report, most=1).splitlines()
    assert len(lines) == 1 + 3 + 1 + 2


def test_a_model_without_casts_has_an_empty_table() -> None:
    result = rewritten("g (float[2] x) => (float[2] y) { y = Exp(x) }")
    assert explain_casts(result.report_of_sizes()).splitlines()[0] == ("0 casts: 0 bytes per run")


def test_an_unknown_dimension_is_an_error(result: amp.RewriteResult) -> None:
    with pytest.raises(OptionError, match="of this name; found 'M'; expected 'N' or 'batch'"):
        result.report_of_sizes({"M": 2})


def test_the_shapes_of_a_run_tell_what_it_moved(result: amp.RewriteResult) -> None:
    shapes = {"x": (16, 4), "a": (16, 4), "h": (16, 4), "y": (16, 4), "z": (2, 2, 4)}
    lines = explain_casts(result.report_of_run({**shapes, "u": (2, 2, 4)})).splitlines()
    inferred = explain_casts(result.report_of_sizes({"N": 16, "batch": 2})).splitlines()
    assert lines == inferred
    assert result.report_of_run(shapes).summary.casts_of_unknown_size == 1
    assert result.report_of_run(shapes).summary.cast_bytes == 384 + 384 + 96
