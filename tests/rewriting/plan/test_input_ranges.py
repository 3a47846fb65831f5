"""Input ranges: what users may write, what follows, and what is refused in one line."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from rewrite_text import assert_close, parse, reasons, rewritten

import amp_rewrite as amp
from amp_rewrite.errors import AmpWarning, OptionError

TEXT = (
    "g (float[2,4] pixels, string[1] label) => (float[2,2] y) "
    "<float[4,2] w = {1,-1,1,-1,1,-1,1,-1}> { h = MatMul(pixels, w) y = Relu(h) }"
)
SQUARES = (
    f"g (float[1,400] x) => (float[1,4] y) <float[400,4] m = {{{','.join(['0.1'] * 1600)}}}> "
    "{ p = Mul(x, x) [mel] y = MatMul(p, m) }"
)


@pytest.mark.parametrize(
    "given", [{"pixels": (0, 255)}, ["pixels=0:255"], {"pixels": [0.0, 255.0]}]
)
def test_a_bound_of_the_result_follows_from_a_range(given: Any) -> None:
    result = rewritten(TEXT, input_ranges=given)
    assert result.report.input_ranges == {"pixels": (0.0, 255.0)}
    assert json.loads(result.report.to_json())["input_ranges"] == {"pixels": [0.0, 255.0]}
    assert "it cannot exceed 1020" in amp.explain(result, "Relu_1")
    assert result.report.nodes[0].variables["T"].bound == pytest.approx(1020, rel=1e-3)


def test_without_a_range_nothing_bounds_a_product() -> None:
    result = rewritten(TEXT)
    assert result.report.input_ranges == {}
    assert result.report.nodes[0].variables["T"].bound is None


def test_a_range_that_certainly_leaves_float16_keeps_the_product_float32() -> None:
    result = rewritten(TEXT.replace("-1", "1"), input_ranges={"pixels": (20000, 30000)})
    assert reasons(result)["MatMul"] == "certain-overflow"
    feeds = {"pixels": np.full((2, 4), 25000, np.float32), "label": np.array(["a"], object)}
    assert np.isfinite(assert_close(result, TEXT.replace("-1", "1"), feeds)["y"]).all()


def test_names_may_have_colons_and_equals_signs() -> None:
    model = parse(TEXT)
    model.graph.input[0].name = model.graph.node[0].input[0] = "a=b:0"
    result = rewritten(model, input_ranges=["a=b:0=-1:1"])
    assert result.report.input_ranges == {"a=b:0": (-1.0, 1.0)}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pixel": (0, 1)}, "names nothing in the model; found 'pixel'; expected 'pixels'"),
        (["pixels"], "holds no range; found 'pixels'; expected NAME=LOW:HIGH"),
        (["=0:1"], "holds no range; found '=0:1'"),
        (["pixels=0"], "has no two numbers for input 'pixels'; found '0'"),
        (["pixels=0:1:2"], "has no two numbers for input 'pixels'; found '0:1:2'"),
        (["pixels=a:1"], "has no two numbers for input 'pixels'; found 'a:1'"),
        ({"pixels": 3}, "has no two numbers for input 'pixels'; found 3"),
        ({"pixels": (255, 0)}, "no range for input 'pixels'; found 255:0; expected two numbers"),
        ({"pixels": (0, float("nan"))}, "no range for input 'pixels'; found 0:nan"),
        (["pixels=0:1", "pixels=0:2"], "two ranges for one input; found 'pixels'"),
        ("pixels=0:1", "input_ranges must be a list"),
        ({"label": (0, 1)}, "input 'label' holds no numbers"),
    ],
)
def test_what_is_no_range_is_refused(given: Any, message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message)) as caught:
        amp.rewrite(parse(TEXT), input_ranges=given)
    assert "\n" not in str(caught.value)


def test_a_range_that_the_type_does_not_meet_is_refused() -> None:
    text = TEXT.replace("string[1] label", "uint8[1] label")
    with pytest.raises(OptionError, match="expected numbers from 0 to 255"):
        amp.rewrite(parse(text), input_ranges={"label": (-9, -1)})


def test_the_first_node_that_an_estimate_keeps_float32_is_named() -> None:
    with pytest.warns(AmpWarning, match="^by an estimate, mel stays float32: y is likely to reach"):
        result = amp.rewrite(parse(SQUARES), target="schema")
    assert "likely to reach" in str(result.report.likely_overflow)


def test_who_knows_better_than_an_estimate_may_say_so() -> None:
    assert reasons(rewritten(SQUARES))["MatMul"] == "likely-overflow"
    assert reasons(rewritten(SQUARES, input_ranges={"x": (-1, 1)}))["MatMul"] == "allow-list"
    assert reasons(rewritten(SQUARES, allow_nodes=["mel"]))["MatMul"] == "allow-list"
