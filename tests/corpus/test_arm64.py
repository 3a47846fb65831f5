"""Models of the corpus in real float16 on an Arm processor, against the original."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amp_rewrite as amp
from amp_rewrite.numerics.convert.opset import upgraded
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs
from amp_rewrite.rewriting.plan.options import AUTO
from amp_rewrite.rewriting.read_source import read_source

pytestmark = pytest.mark.arm64

MODELS = (
    *("oww_hey_mycroft", "oww_hey_jarvis", "oww_embedding", "oww_melspec", "ppocr_cls"),
    *("silero_v4", "silero_v6", "silero_v6_16k_op15", "silero_v6_ifless", "silero_v6_sequence"),
    *("light_shufflenet", "ppocrv4_det"),
    pytest.param("basic_pitch", marks=pytest.mark.slow),
)

COSINE = 0.999


def converted(path: Path) -> Any:
    """Return what `convert --target cpu-arm64` makes of a model."""
    options = amp.RewriteOptions(target="cpu-arm64")
    raised = upgraded(read_source(path, inline_functions=False), AUTO, options)[1]
    return amp.rewrite(path if raised is None else raised.model, options).model


def cosine(a: Any, b: Any) -> float:
    x, y = (np.asarray(value, np.float64).ravel() for value in (a, b))
    size = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(x @ y) / size if size else float(np.array_equal(x, y))


@pytest.mark.share(3)
@pytest.mark.parametrize("name", MODELS)
def test_models_load_and_compute_what_they_did(name: str, corpus: Any, arm64: Any) -> None:
    path = corpus.path(name)
    original = Evaluator(path)
    _, feeds = PlausibleInputs.of(amp.load(path), 0).runnable(original.run)
    expected = original.run(feeds)
    found = arm64(converted(path)).run(feeds)
    assert min(cosine(expected[name], found[name]) for name in expected) >= COSINE
