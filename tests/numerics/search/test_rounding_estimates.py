"""What rounding in a node brings, and a search that goes by it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hot_chains import chain
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.numerics.repaint.repaint import Repainter, Slot
from amp_rewrite.numerics.search.rounding_estimates import Estimates
from amp_rewrite.numerics.search.tolerance import Tolerance
from amp_rewrite.numerics.search.tune import tune
from amp_rewrite.rewriting.plan.options import RewriteOptions


def test_a_node_brings_what_its_results_and_constants_bring() -> None:
    painter = Repainter.of(chain(()), RewriteOptions(target="schema"))
    estimates = Estimates(painter, {"h3": 9e-6, "w": 16e-6})
    found = estimates.contributions([Slot(3, "T"), Slot(4, "T")])
    assert found == {"n3": pytest.approx(5e-3), "n4": pytest.approx(4e-3)}


def test_a_search_goes_by_the_estimate_and_says_so() -> None:
    rng = np.random.default_rng(0)
    model = parse(
        "g (float[4,16] x) => (float[4,16] y) { [a] h = MatMul(x, w) [b] y = MatMul(h, w) }"
    )
    weight = rng.standard_normal((16, 16)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    feeds = [{"x": rng.standard_normal((4, 16)).astype(np.float32)}]
    plain = tune(model, feeds, Tolerance("max-relative", 1.0), target="schema")
    limit = Tolerance("max-relative", plain.loss / 2)
    found = tune(model, feeds, limit, target="schema", estimate=amp.rounding_errors)
    assert found.loss <= limit.limit
    assert found.minimal
    assert "it changes the outputs by about" in found.to_yaml()
