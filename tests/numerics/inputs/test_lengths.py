"""How long sequences can be made."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import amp_rewrite as amp
from amp_rewrite.numerics.inputs.lengths import LONGEST, Growth, candidate_lengths

HEADER = '<ir_version: 9, opset_import: ["" : 17]>'


def test_values_grow_as_powers_of_the_length() -> None:
    short = {"fixed": (25, 4), "rows": (16, 10), "scores": (256, 1), "empty": (0, 4)}
    long = {"fixed": (25, 4), "rows": (32, 10), "scores": (1024, 1), "empty": (0, 4)}
    growth = Growth.between(16, short, 32, long)
    assert growth.nbytes(16) == pytest.approx(516)
    assert growth.nbytes(64) == pytest.approx(100 + 640 + 4096)


def test_scores_over_a_long_past_grow_with_the_tokens_that_are_added() -> None:
    growth = Growth.between(16, {"scores": (16, 240, 4)}, 32, {"scores": (32, 256, 4)})
    assert growth.nbytes(4096) == pytest.approx(4096 * (4096 + 224) * 4)


def test_what_shrinks_is_taken_as_it_is() -> None:
    assert Growth.between(16, {"a": (100,)}, 32, {"a": (50,)}).nbytes(1024) == 50


def test_candidates_are_powers_of_two_and_lengths_of_tables() -> None:
    model = onnx.parser.parse_model(
        HEADER + """g (int64[1,n] x) => (float[1,n,4] y) { y = Gather(w, x) }"""
    )
    table = numpy_helper.from_array(np.ones((514, 4), np.float32), "w")
    model.graph.initializer.append(table)
    found = list(candidate_lengths(amp.load(model), above=16))
    assert found[0] == LONGEST >= 100_000
    assert found[-1] == 32
    assert found == sorted(found, reverse=True)
    assert {514, 512, 1024} <= set(found)
