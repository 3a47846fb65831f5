"""On which devices low precision pays."""

import pytest

from amp_rewrite.runtimes.ort.device import Device
from amp_rewrite.training.session.slow_device import reason_against


@pytest.mark.parametrize(
    ("precision", "device", "capability", "text"),
    [
        ("float32", Device(), None, None),
        ("float16", Device(), None, "float16 on a CPU"),
        ("bfloat16", Device(), None, "bfloat16 on a CPU"),
        ("float32", Device("cuda"), 6.1, None),
        ("float16", Device("cuda"), 6.1, "its compute capability is 6.1"),
        ("float16", Device("cuda"), 7.0, None),
        ("float16", Device("cuda"), None, None),
        ("float16", Device("dml"), None, None),
    ],
)
def test_devices_that_do_not_pay_have_a_reason(
    precision: str, device: Device, capability: float | None, text: str | None
) -> None:
    reason = reason_against(precision, device, capability)
    assert reason is None if text is None else reason is not None and text in reason
