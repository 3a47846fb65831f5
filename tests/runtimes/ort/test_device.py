"""Where the preferred provider keeps tensors."""

import pytest

from amp_rewrite.runtimes.ort import providers
from amp_rewrite.runtimes.ort.device import HOST, Device, device_of
from amp_rewrite.targets import CPU, CUDA


@pytest.fixture(autouse=True)
def everything_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (CUDA, "DmlExecutionProvider", "XnnpackExecutionProvider", CPU)
    monkeypatch.setattr(providers, "available_providers", lambda: names)


@pytest.mark.parametrize(
    ("given", "device"),
    [
        ([CPU], HOST),
        ([CUDA, CPU], Device("cuda", 0)),
        ([(CUDA, {"device_id": 2}), CPU], Device("cuda", 2)),
        ([("DmlExecutionProvider", {"device_id": "1"})], Device("dml", 1)),
        ([CPU, CUDA], HOST),
        (["XnnpackExecutionProvider"], HOST),
    ],
)
def test_the_first_provider_decides(given: list, device: Device):
    assert device_of(given) == device
    assert device.is_host == (device == HOST)
