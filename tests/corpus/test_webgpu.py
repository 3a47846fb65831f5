"""Models of the corpus in real float16: WebGPU, against the original and against the emulation."""

from collections.abc import Callable
from functools import cache
from statistics import median
from typing import Any

import pytest

import amp_rewrite as amp
from amp_rewrite.numerics.compare.verify_report import VerifyReport

pytestmark = pytest.mark.webgpu

Reports = Callable[[str], VerifyReport]

EXACT = (
    *("basic_pitch", "oww_embedding", "oww_hey_jarvis"),
    *("light_inception_v2", "light_shufflenet"),
)
"""Models that are predicted bit for bit."""

CLOSE = (
    *("magika", "minilm_l3_ortfused", "oww_hey_mycroft"),
    *("ppocrv4_rec", "silero_v4", "silero_v6_16k_op15"),
)
"""Models with operators that the device fuses, that the emulation takes for one step, or that end
in float32, as oww_hey_mycroft does: its device's Sigmoid differs by 2e-7."""

COSINE = 0.999

SHARE = 1 / 3
"""How far the device may be from the emulation, in the median, as a share of how far the emulation
is from float32."""

FLOAT32 = 1e-6
"""How far sums of float32 in another order may be: what stays float32 is not rounded."""


@pytest.fixture(scope="module")
def reports(corpus: Any, webgpu: str) -> Reports:
    """Return a function that verifies a model of the corpus on WebGPU, once."""

    @cache
    def report(name: str) -> VerifyReport:
        path = corpus.path(name)
        low = amp.rewrite(path, target="webgpu")
        assert low.changed
        return amp.verify(path, low.model, providers=[webgpu], intermediates=False, stress=False)

    return report


def share(report: VerifyReport) -> float:
    """Return how far the device is from the emulation, by how far that is from float32."""
    assert report.device is not None
    pairs = zip(report.outputs, report.device.outputs, strict=True)
    far = [(real.error or 0.0, emulated.error or 0.0) for emulated, real in pairs]
    return max(real / emulated if real > FLOAT32 else 0.0 for real, emulated in far)


@pytest.mark.share(3)
@pytest.mark.parametrize("name", [*EXACT, *CLOSE])
def test_models_compute_in_real_float16(name: str, reports: Reports) -> None:
    device = reports(name).device
    assert device is not None
    assert device.error is None
    for output in device.original:
        assert output.nan == output.inf == 0
        assert output.cosine is None or output.cosine >= COSINE


@pytest.mark.parametrize("name", EXACT)
def test_what_was_measured_is_predicted_bit_for_bit(name: str, reports: Reports) -> None:
    device = reports(name).device
    assert device is not None
    assert [output.error for output in device.outputs] == [0.0] * len(device.outputs)


def test_the_emulation_is_nearer_to_the_device_than_to_float32(reports: Reports) -> None:
    assert median(share(reports(name)) for name in (*EXACT, *CLOSE)) <= SHARE
