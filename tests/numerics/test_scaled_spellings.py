"""A stream beyond float16 is scaled through what scales, else the report says why."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from scaled_spellings import SPELLINGS, spelled, spelled_feeds

import amp_rewrite as amp
from amp_rewrite.graph.io.read import read_model
from amp_rewrite.numerics.convert.scale import LARGEST_DIFFERENCE, proof_of
from amp_rewrite.rewriting.scaling.scaling import Scaling

QUICK = ("Pad of opset 9",)
EACH = [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in SPELLINGS]

COSINE = 0.9995


def proved(name: str, scaling: Scaling) -> bool:
    """Tell whether the scaled model computes the same on numbers of other sizes, zero included."""
    feeds = [spelled_feeds(name, scale, seed=5) for scale in (1.0, 1e-3, 30.0, 0.0)]
    model = spelled(name)
    return proof_of(model, read_model(scaling.flat), feeds).difference <= LARGEST_DIFFERENCE


def right(made: amp.Conversion) -> bool:
    """Tell whether a conversion is a valid file that gives the right numbers."""
    onnx.checker.check_model(amp.to_proto(made.model))
    assert made.verification is not None
    return made.ok and min(o.cosine or 0.0 for o in made.verification.outputs) >= COSINE


@pytest.mark.parametrize("name", EACH)
def test_a_stream_is_scaled_or_the_report_says_why(name: str) -> None:
    made = amp.convert(spelled(name), [spelled_feeds(name)], stress=False)
    assert right(made)
    assert made.report.scaling is not None
    why = SPELLINGS[name].why
    if why:
        assert any(why in left.why for left in made.report.scaling.unscaled)
        return
    assert not made.report.scaling.unscaled
    assert made.result.scaling is not None
    assert proved(name, made.result.scaling)


BEYOND = ("an infinite mask", "Clip at the end of float32", "values of 1e30")
"""What float16 cannot hold."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n for n, found in SPELLINGS.items() if not found.outputs and n not in BEYOND]
)
def test_a_float16_file_is_repaired_or_the_text_says_why(name: str) -> None:
    made = amp.repair(spelled(name, np.float16), [spelled_feeds(name, dtype=np.float16)])
    onnx.checker.check_model(amp.to_proto(made.model))
    assert made.verification is not None
    assert made.verification.ok
    why = SPELLINGS[name].why
    assert why in made.to_text().replace("\n", " ")
    assert why or made.scaling is not None
