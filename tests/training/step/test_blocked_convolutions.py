"""Steps whose convolutions run in blocks of channels compute what they did before."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import train_models
from onnx import TensorProto, numpy_helper, parser
from thread_shards import on_threads

import amp_rewrite as amp
from amp_rewrite import optimizers
from amp_rewrite.optimizers import GradientDescent
from amp_rewrite.training.session.compiled_program import CompiledProgram
from amp_rewrite.training.step import blocked_convolutions

TEXT = """<ir_version: 8, opset_import: ["": 17]>
    g (float[{batch}, {channels}, 9, 8] x) => (float loss) {{
        a = Conv<{window}>(x, w, c)
        b = Tanh(a)
        d = Conv<{window}>(b, v)
        loss = ReduceMean<keepdims = 0>(d) }}"""


@pytest.fixture
def blocks() -> None:
    """Skip where the processor has no blocks."""
    if not blocked_convolutions.channel_block():
        pytest.skip("this processor has no blocks")


def counts(monkeypatch: pytest.MonkeyPatch, block: int | None = None) -> list[int]:
    """Return what will hold, for each program that is loaded, how many nodes in blocks it has."""
    found: list[int] = []
    load = CompiledProgram._load

    def counted(self: CompiledProgram, model: Any, *args: Any) -> Any:
        found.append(sum(n.domain == blocked_convolutions.DOMAIN for n in model.graph))
        return load(self, model, *args)

    monkeypatch.setattr(CompiledProgram, "_load", counted)
    if block is not None:
        monkeypatch.setattr(blocked_convolutions, "channel_block", lambda: block)
    return found


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
    found = counts(monkeypatch, block)
    proto = parser.parse_model(TEXT.format(window=window, channels=channels, batch=batch))
    rng = np.random.default_rng(0)
    shapes = {"w": (channels, channels // group, 3, 3), "v": (32, channels // group, 3, 3)}
    arrays = {n: (rng.normal(size=s) * 0.3).astype(np.float32) for n, s in shapes.items()}
    arrays["c"] = rng.normal(size=channels).astype(np.float32)
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
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


@pytest.mark.share(11)
@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("scale", [None, "dynamic"])
@pytest.mark.parametrize("batch", ["N", 4])
@pytest.mark.parametrize(
    ("window", "channels"),
    [
        ("pads = [1, 1, 1, 1]", 16),
        ("pads = [1, 1, 1, 1]", 32),
        ("pads = [1, 1, 1, 1]", 24),
        ("pads = [0, 1, 2, 1]", 16),
        ("pads = [2, 1, 1, 2], strides = [2, 1]", 16),
        ("pads = [2, 2, 2, 2], dilations = [2, 1]", 16),
        ('auto_pad = "SAME_UPPER"', 32),
    ],
)
def test_steps_are_the_same(
    window: str, channels: int, batch: object, scale: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, none = session(window, channels, batch, monkeypatch, block=0, scale=scale)
    sizes = (4, 4, 3) if batch == "N" else (4, 4)
    expected = trained(plain, channels, sizes)
    assert not any(none)
    monkeypatch.undo()
    blocked, some = session(window, channels, batch, monkeypatch, scale=scale)
    for found, before in zip(trained(blocked, channels, sizes), expected, strict=True):
        np.testing.assert_allclose(found, before, rtol=1e-5, atol=1e-5)
    assert any(some)


def network() -> Any:
    """Return a network of convolutions, the last of which is chosen by an If: x (N, 16, 6, 6)."""
    net = train_models.Net(0)
    x = net.input("x", TensorProto.FLOAT, "N", 16, 6, 6)
    t = net.input("t", TensorProto.INT64, "N")
    x = net.op("Tanh", net.conv(x, "first", 16, 16))
    x = net.op("Dropout", x, net.constant("ratio", np.float32(0.25)))
    x = net.op("Tanh", net.conv(x, "second", 16, 32, step=2))
    y = net.conv(x, "third", 32, 32)
    proto = parser.parse_graph(f"""g () => () {{
        s = ReduceSum<keepdims = 0>({x}) zero = Constant<value = float {{0}}>()
        more = Greater(s, zero)
        chosen = If(more) <
            then_branch = a () => (float[N, 32, 3, 3] p) {{
                p = Conv<pads = [1, 1, 1, 1]>({y}, v) }},
            else_branch = b () => (float[N, 32, 3, 3] q) {{ q = Tanh({y}) }}
        > }}""")
    net.weight("v", 32, 32, 3, 3)
    net.nodes.extend(proto.node)
    x = net.linear(net.op("Flatten", "chosen", axis=1), "last", 32 * 9, 5)
    net.loss(net.op("Identity", x, name="logits"), t, 5)
    return net.model("blocks")


def batch(step: int) -> dict[str, Any]:
    """Return a batch; every third one is smaller."""
    rng, size = np.random.default_rng(step), 3 if step % 3 == 2 else 8
    x = rng.normal(size=(size, 16, 6, 6)).astype(np.float32)
    return {"x": x, "t": rng.integers(0, 5, size)}


def minimized(optimizer: Callable[[], Any], **options: Any) -> Any:
    return optimizer().minimize(amp.value(amp.load(network()), "loss"), **options)


def two_losses() -> Any:
    model = amp.load(network())
    loss, logits = amp.value(model, "loss"), amp.value(model, "logits")
    second = GradientDescent(0.01).minimize((logits * logits).mean(), var_list=["second.weight"])
    return optimizers.group(momentum().minimize(loss, var_list=["first.weight", "v"]), second)


def momentum() -> Any:
    return optimizers.Momentum(0.01, 0.9)


def scaled(mode: str = "if") -> Any:
    averaged = optimizers.WeightAverage(momentum(), decay=0.9)
    return amp.LossScaleOptimizer(averaged, "dynamic", conditional=mode)


FEATURES: dict[str, Callable[[], Any]] = {
    "loss scale and averages": partial(minimized, scaled),
    "select": partial(minimized, partial(scaled, "select")),
    "accumulation": partial(minimized, scaled, accumulate=2),
    "clipping": partial(minimized, partial(optimizers.Momentum, 0.01, 0.9, global_clipnorm=0.5)),
    "two losses": two_losses,
}


def agree(found: amp.TrainingSession, expected: amp.TrainingSession) -> None:
    """Check states, evaluation and averages."""
    states, wanted = found.state_dict(), expected.state_dict()
    assert states.keys() == wanted.keys()
    for name, array in wanted.items():
        assert states[name].dtype == array.dtype
        np.testing.assert_allclose(states[name], array, rtol=1e-4, atol=1e-5, err_msg=name)
    for averaged in (False, True) if expected.info.averages else (False,):
        losses = [
            float(s.evaluate(batch(99), averaged=averaged)["loss"]) for s in (found, expected)
        ]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.share(4)
@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("feature", FEATURES)
def test_what_a_session_does_goes_with_them(feature: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build = FEATURES[feature]
    some = counts(monkeypatch)
    with amp.TrainingSession(build()) as found, monkeypatch.context() as patch:
        found.run(batch(0))
        found.evaluate(batch(0))
        assert len(some) == 2
        assert all(some)
        none = counts(patch, 0)
        with amp.TrainingSession(build()) as expected:
            expected.run(batch(0))
            for step in range(1, 7):
                losses = [float(s.run(batch(step))["loss"]) for s in (found, expected)]
                assert losses[0] == pytest.approx(losses[1], rel=1e-4)
            agree(found, expected)
            assert not any(none)


def test_shards_leave_them_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = counts(monkeypatch)

    def run(shards: Any) -> dict[str, Any]:
        with shards:
            train_op = minimized(lambda: amp.CrossShardOptimizer(momentum()))
        with amp.TrainingSession(train_op, shards=shards, threads=1) as session:
            session.run(batch(shards.rank))
            return session.state_dict()

    first, second = on_threads(2, run)
    assert found
    assert not any(found)
    for name in ("first.weight", "second.weight", "v"):
        np.testing.assert_array_equal(first[name], second[name])
