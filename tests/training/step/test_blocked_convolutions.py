"""Steps whose convolutions run in blocks of channels compute what they did before."""

from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper, parser

import amp_rewrite as amp
from amp_rewrite.optimizers import GradientDescent
from amp_rewrite.runtimes.ort import blocked_layout
from amp_rewrite.training.session.program import Program
from amp_rewrite.training.step import blocked_convolutions

TEXT = """<ir_version: 8, opset_import: ["": 17]>
    g (float[{batch}, {channels}, 9, 8] x) => (float loss) {{
        a = Conv<{window}>(x, w, c)
        b = Tanh(a)
        d = Conv<{window}>(b, v)
        loss = ReduceMean<keepdims = 0>(d) }}"""


def session(
    window: str,
    channels: int,
    batch: object,
    monkeypatch: pytest.MonkeyPatch,
    *,
    block: int | None = None,
    group: int = 1,
    scale: Any = None,
) -> tuple[amp.TrainingSession, list[int]]:
    """Return a session, and how many nodes in blocks each program has that it loads."""
    found: list[int] = []
    load = Program._load

    def counted(self: Program, model: Any, *args: Any) -> Any:
        found.append(sum(n.domain == blocked_layout.DOMAIN for n in model.graph))
        return load(self, model, *args)

    proto = parser.parse_model(TEXT.format(window=window, channels=channels, batch=batch))
    rng = np.random.default_rng(0)
    shapes = {"w": (channels, channels // group, 3, 3), "v": (32, channels // group, 3, 3)}
    arrays = {n: (rng.normal(size=s) * 0.3).astype(np.float32) for n, s in shapes.items()}
    arrays["c"] = rng.normal(size=channels).astype(np.float32)
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
    monkeypatch.setattr(Program, "_load", counted)
    if block is not None:
        monkeypatch.setattr(blocked_convolutions, "channel_block", lambda: block)
    model = amp.load(proto)
    made: Any = GradientDescent(0.5)
    if scale is not None:
        made = amp.LossScaleOptimizer(made, scale)
    return amp.TrainingSession(made.minimize(amp.value(model, "loss"))), found


def trained(
    session: amp.TrainingSession, channels: int, sizes: tuple[int, ...] = (4, 4, 3)
) -> list[Any]:
    rng = np.random.default_rng(1)
    for size in sizes:
        session.run({"x": rng.normal(size=(size, channels, 9, 8)).astype(np.float32)})
    return [session.state_dict()[name] for name in ("w", "v", "c")]


@pytest.mark.parametrize("scale", [None, "dynamic"])
@pytest.mark.parametrize("batch", ["N", 4])
@pytest.mark.parametrize(
    ("window", "channels"),
    [
        ("pads = [1, 1, 1, 1]", 16),
        ("pads = [1, 1, 1, 1]", 32),
        ("pads = [0, 1, 2, 1]", 16),
        ("pads = [2, 1, 1, 2], strides = [2, 1]", 16),
        ("pads = [2, 2, 2, 2], dilations = [2, 1]", 16),
        ('auto_pad = "SAME_UPPER"', 32),
    ],
)
def test_steps_are_the_same(
    window: str, channels: int, batch: object, scale: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not blocked_layout.channel_block():
        pytest.skip("this processor has no blocks")
    plain, none = session(window, channels, batch, monkeypatch, block=0, scale=scale)
    sizes = (4, 4, 3) if batch == "N" else (4, 4)
    expected = trained(plain, channels, sizes)
    assert not any(none)
    monkeypatch.undo()
    blocked, some = session(window, channels, batch, monkeypatch, scale=scale)
    for found, before in zip(trained(blocked, channels, sizes), expected, strict=True):
        np.testing.assert_allclose(found, before, rtol=1e-5, atol=1e-5)
    assert any(some)


@pytest.mark.parametrize(("window", "channels", "group"), [("group = 2", 32, 2), ("", 12, 1)])
def test_groups_and_channels_that_fill_no_blocks_are_left(
    window: str, channels: int, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = window or "pads = [1, 1, 1, 1]"
    made, found = session(window, channels, "N", monkeypatch, group=group)
    trained(made, channels)
    assert found
    assert not any(found)
