"""Models of the corpus in real float16: WebGPU, against the original and against the emulation."""

from typing import Any

import pytest

import amp_rewrite as amp

pytestmark = pytest.mark.webgpu

MODELS = {
    "basic_pitch": 1 / 3,
    "oww_embedding": 0.0,
    "oww_hey_mycroft": 0.0,
    "oww_melspec": 1e-3,
}
"""Models of the corpus, and how far the device may be from the emulation, as a share of how far the
emulation is from float32: 0 is bit for bit."""

COSINE = 0.999


@pytest.mark.parametrize("name", MODELS)
def test_models_compute_in_real_float16_what_was_predicted(
    name: str, corpus: Any, webgpu: str
) -> None:
    path = corpus.path(name)
    low = amp.rewrite(path, target="webgpu").model
    report = amp.verify(path, low, providers=[webgpu], intermediates=False, stress=False)
    device = report.device
    assert device is not None
    assert device.error is None
    for emulated, real, original in zip(
        report.outputs, device.outputs, device.original, strict=True
    ):
        assert original.nan == original.inf == 0
        assert original.cosine is not None
        assert original.cosine >= COSINE
        assert emulated.distance is not None
        assert real.distance is not None
        assert real.distance <= MODELS[name] * emulated.distance
        assert emulated.distance > 0, "the model was not converted"
