"""A weight that is stored in both types is named, and a file that grows is told."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.errors import AmpWarning

SHARED = """g (float[4,64] x) => (float[4,64] y, float[4,64] z)
    { [low] y = MatMul(x, w) [wide] z = MatMul(x, w) }"""
GROWS = "the file grows by 8,192 bytes: 1 weight is stored in both types, first w, which low reads "


def model(rows: int) -> onnx.ModelProto:
    """Return two products with one weight."""
    text = SHARED.replace("64", str(rows))
    found = parse(text)
    weight = np.random.default_rng(0).standard_normal((rows, rows)).astype(np.float32)
    found.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return found


def test_a_file_that_grows_is_told_with_the_weight() -> None:
    with pytest.warns(AmpWarning, match=GROWS + "low and wide as float32; --deny-node low keeps"):
        result = amp.rewrite(model(64), target="schema", deny_nodes=["wide"])
    (twice,) = result.report.weights.twice
    assert (twice.name, twice.bytes_added) == ("w", 8192)
    assert (twice.low_reader, twice.float32_reader) == ("low", "wide")
    line = "stored in both types: 1 constant, 8,192 bytes more; first w, which low reads low"
    assert line in result.report.to_text().replace("\n", " ")


def test_short_constants_are_listed_without_a_warning() -> None:
    report = amp.rewrite(model(8), target="schema", deny_nodes=["wide"]).report
    assert [record.name for record in report.weights.twice] == ["w"]


def test_a_weight_that_is_stored_once_is_not_listed() -> None:
    report = amp.rewrite(model(64), target="schema").report
    assert report.weights.twice == ()
    assert "both types" not in report.to_text()
