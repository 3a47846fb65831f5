"""Stress inputs of real models: the float32 model runs on every one of them."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from catalog import REAL
from thinned import thinned

import amp_rewrite as amp
from amp_rewrite.numerics.emulate import Evaluator
from amp_rewrite.numerics.inputs.input_roles import roles_of
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs
from amp_rewrite.numerics.inputs.stress_inputs import KINDS, StressInputs
from amp_rewrite.runtimes.ort.sessions import session_options

IMAGES = {"zeros", "repeated values", "normalised image", "image 0..255"}
SOUNDS = {"zeros", "repeated values", "sound -1..1", "sound of 16 bits"}
TOKENS = {"repeated values", "whole vocabulary"}
FEATURES = {"zeros", "repeated values", "large constants", "unnormalised numbers"}
MASKED = TOKENS | {"fully masked rows", "padded rows"}

LARGE = ("light_vgg19", "resnet50_rand")
"""Images as all others of their kind see them, at up to 1.1 GiB."""

EXPECTED = {
    "basic_pitch": SOUNDS,
    "magika": TOKENS,
    "minilm_l3": MASKED,
    "minilm_l3_ortfused": MASKED,
    "ort_mul_1": FEATURES,
    "oww_embedding": IMAGES,
    "oww_hey_jarvis": FEATURES,
    "oww_hey_mycroft": FEATURES,
    "oww_melspec": SOUNDS,
    "silero_v4": SOUNDS,
    "silero_v6": SOUNDS,
    "silero_v6_16k_op15": SOUNDS,
    "silero_v6_ifless": SOUNDS | FEATURES,  # the state is split inside branches
    "silero_v6_sequence": SOUNDS,
}
"""Name -> the kinds that concern the model; all others see images."""


def options_of(name: str) -> Any:
    """Return options for a model; nodes make the weights of a light one, twice if it is folded."""
    options = session_options()
    if name.startswith("light_"):
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


@pytest.mark.share(15)
@pytest.mark.parametrize("name", thinned(REAL, lambda name: name in LARGE))
def test_the_original_runs_on_every_kind_that_concerns_it(corpus: Any, name: str) -> None:
    model = amp.load(corpus.path(name))
    evaluator = Evaluator(model, options=options_of(name))
    plausible = PlausibleInputs.of(model)
    _, feeds = plausible.runnable(evaluator.run)
    inputs = StressInputs(feeds, roles_of(model, plausible.specs, plausible.limits), 0)
    made = {kind: next(iter(inputs.alternatives(kind)), None) for kind in KINDS}
    tried = {kind: stress for kind, stress in made.items() if stress is not None}
    for stress in tried.values():
        found = evaluator.run(stress)
        assert not any(np.isnan(array).any() for array in found.values())
    assert set(tried) == EXPECTED.get(name, IMAGES)
