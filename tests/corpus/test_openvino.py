"""Rewritten models on OpenVINO: they load, compute in bfloat16, and as the emulation says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from resources import give_back, has_amx

import amp_rewrite as amp
from amp_rewrite import targets
from amp_rewrite.kernels.rounding_table import of_target
from amp_rewrite.numerics.convert.opset import upgraded
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.read_source import read_source
from amp_rewrite.targets import OPENVINO

pytestmark = [pytest.mark.openvino, pytest.mark.usefixtures("bfloat16_processor")]

MODELS = (
    *("basic_pitch", "magika", "minilm_l3", "minilm_l3_ortfused", "oww_embedding"),
    *("oww_hey_mycroft", "oww_melspec", "ppocr_cls", "ppocrv4_rec", "silero_v4"),
    *("silero_v6_ifless", "silero_v6_sequence"),
)
OPTIONS = RewriteOptions(precision="bfloat16", target="openvino")
SHAPES = {"ppocrv4_rec": {"x": (1, 3, 48, 320)}}
"""Inputs of other shapes than the least plausible: of a text as long as there are heads, OpenVINO
computes attention wrong in float32 as well (docs/arithmetic.md)."""
EXPLAINED = ("basic_pitch", "magika", "ppocrv4_rec")
CLOSE, MEDIAN = 0.5, 1 / 3
"""How far the emulation may be from the engine, where float32 is at 1: of those, and in the median
of all. In a deep model one sum in another order turns a rounding, and that turns others."""


def distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Return the mean over outputs of their Euclidean distance relative to their size."""
    found: list[float] = []
    for name, value in one.items():
        if np.asarray(value).dtype.kind in "fV":
            a, b = np.asarray(value, np.float64), np.asarray(other[name], np.float64)
            found.append(float(np.linalg.norm(a - b) / max(np.linalg.norm(a), 1e-30)))
    return float(np.mean(found))


def share(path: Path) -> float | None:
    """Return how far the emulation is from the engine, where float32 is at 1.

    None if the model is left as it is, since nothing would be gained.
    """
    raised = upgraded(read_source(path, inline_functions=False), "auto", OPTIONS)[1]
    rewritten = amp.rewrite(path if raised is None else raised.model, OPTIONS).model
    original = Evaluator(path)
    _, feeds = PlausibleInputs.of(amp.load(path), 0).runnable(original.run)
    random = np.random.default_rng(0)
    for name, shape in SHAPES.get(path.stem, {}).items():
        feeds[name] = random.standard_normal(shape).astype(np.float32)
    expected = original.run(feeds)
    del original  # one session at a time
    on_engine = Evaluator(rewritten, emulate=False, providers=[OPENVINO], profile=True)
    real = on_engine.run(feeds)
    if "bfloat16" not in {node.type for node in on_engine.ran_nodes()}:
        return None
    del on_engine
    table = of_target(targets.find("openvino"))
    emulated = Evaluator(rewritten, rounding=table).run(feeds)
    return distance(emulated, real) / distance(expected, real)


def test_twelve_models_compute_there_as_the_emulation_says(corpus) -> None:
    shares: dict[str, float] = {}
    for name in MODELS:
        found = share(corpus.path(name))
        give_back()
        if found is not None:
            shares[name] = found
    assert len(shares) > len(MODELS) / 2, str(shares)
    if has_amx():  # what is rounded as one was not measured there: no more than nearer than float32
        assert median(shares.values()) < 1, str(shares)
        return
    assert all(shares[name] < CLOSE for name in EXPLAINED if name in shares), str(shares)
    assert median(shares.values()) < MEDIAN, str(shares)
