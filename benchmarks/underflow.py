"""Why losses are scaled: a deep network with a small loss, trained with and without a loss scale.

    python benchmarks/underflow.py [-o docs/underflow.svg]

trains it in float32, in emulated float16 without and with a dynamic loss scale, and in emulated
bfloat16, and draws the four curves. The gradients of a loss of 1e-6 begin at 1e-5 and shrink from
layer to layer, below 6e-8, where float16 ends.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import train_models
from numpy.typing import NDArray
from onnx import TensorProto, helper

import amp_rewrite as amp

LAYERS, WIDTH, INPUTS, BATCH = 8, 32, 8, 256
TARGET = 1e-3
"""The amplitude of the targets: displacements in metres, say."""
STEPS = 400
RUNS: Mapping[str, tuple[str, bool]] = {
    "float32": ("float32", False),
    "float16, no loss scale": ("float16", False),
    "float16, dynamic loss scale": ("float16", True),
    "bfloat16, no loss scale": ("bfloat16", False),
}
"""Name of a curve -> precision, and whether the loss is scaled."""


def network(seed: int = 0) -> onnx.ModelProto:
    """Return tanh layers and a mean squared error: x (N, INPUTS), t (N, 1)."""
    net = train_models.Net(seed)
    y = net.input("x", TensorProto.FLOAT, "N", INPUTS)
    t = net.input("t", TensorProto.FLOAT, "N", 1)
    sizes = [INPUTS, *[WIDTH] * LAYERS]
    for i in range(LAYERS):
        weight = net.weight(f"layer{i}.weight", sizes[i + 1], sizes[i], scale=sizes[i] ** -0.5)
        bias = net.full(f"layer{i}.bias", 0, sizes[i + 1])
        y = net.op("Tanh", net.op("Gemm", y, weight, bias, transB=1))
    last = net.weight("last.weight", 1, WIDTH, scale=0.01 * WIDTH**-0.5)
    error = net.op("Sub", net.op("Gemm", y, last, net.full("last.bias", 0, 1), transB=1), t)
    net.op("ReduceMean", net.op("Mul", error, error), name="loss", keepdims=0)
    net.outputs.append(helper.make_tensor_value_info("loss", TensorProto.FLOAT, []))
    return net.model("deep")


def batch(step: int) -> dict[str, NDArray[np.float32]]:
    """Return a batch: x is normal, t a sine of a projection of x; a function of `step` alone."""
    x = np.random.default_rng([3, step]).normal(size=(BATCH, INPUTS))
    direction = np.random.default_rng(1).normal(size=(INPUTS, 1))
    t = TARGET * np.sin(x @ direction)
    return {"x": x.astype(np.float32), "t": t.astype(np.float32)}


def session(
    precision: str, scaled: bool, seed: int = 0, *, engine: str | None = None
) -> amp.TrainingSession:
    """Return a session that trains the network, emulated on a CPU unless an engine computes it."""
    model = amp.load(network(seed))
    # Adam's usual epsilon of 1e-8 is as large as these gradients.
    optimizer = amp.optimizers.Adam(1e-3, epsilon=1e-12)
    if scaled:
        scale = amp.DynamicLossScale(2.0**15, increment_period=20)
        optimizer = amp.LossScaleOptimizer(optimizer, scale)
    op = optimizer.minimize(amp.value(model, "loss"))
    if engine is not None:
        target = f"{engine},schema"
        return amp.TrainingSession(op, [engine], precision=precision, target=target, threads=1)
    return amp.TrainingSession(op, precision=precision, emulate=True, threads=1)


def curve(
    precision: str, scaled: bool, steps: int = STEPS, seed: int = 0, *, engine: str | None = None
) -> NDArray[np.float64]:
    """Return the loss of each step relative to the mean square of the targets, (steps,)."""
    with session(precision, scaled, seed, engine=engine) as opened:
        losses = [float(opened.run(batch(i), "loss")["loss"]) for i in range(steps)]
    return np.array(losses) / (
        TARGET**2 * np.mean([np.mean((batch(i)["t"] / TARGET) ** 2) for i in range(8)])
    )


def smooth(values: NDArray[np.float64], width: int = 15) -> NDArray[np.float64]:
    """Return a moving average; shorter at the beginning."""
    total = np.cumsum(np.insert(values, 0, 0.0))
    index = np.arange(1, len(values) + 1)
    start = np.maximum(index - width, 0)
    return (total[index] - total[start]) / (index - start)


_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 400, 64, 210, 44, 48
_LOW, _HIGH = 0.1, 10.0
_COLORS = ("#1a1a1a", "#d1242f", "#0969da", "#8250df")
_FONT = 'font-family="sans-serif" font-size="13"'


def svg(curves: Mapping[str, Sequence[float] | NDArray[np.float64]]) -> str:
    """Return the curves as a picture, the loss on a logarithmic axis."""
    plot_width, plot_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    steps = max(len(values) for values in curves.values())

    def x_of(step: float) -> float:
        return _LEFT + plot_width * step / steps

    def y_of(value: float) -> float:
        share = np.log(np.clip(value, _LOW, _HIGH) / _LOW) / np.log(_HIGH / _LOW)
        return float(_TOP + plot_height * (1 - share))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" {_FONT}>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="24" font-size="15">Loss of a deep network whose gradients '
        "underflow in float16</text>",
    ]
    for value in (0.1, 0.3, 1, 3, 10):
        y = y_of(value)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_LEFT + plot_width}" stroke="#d0d7de"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    parts += [
        f'<text x="{x_of(step):.1f}" y="{_HEIGHT - 26}" text-anchor="middle">{step}</text>'
        for step in range(0, steps + 1, 100)
    ]
    parts.append(
        f'<text x="{_LEFT + plot_width / 2}" y="{_HEIGHT - 8}" text-anchor="middle">step</text>'
    )
    parts.append(
        f'<text transform="translate(16 {_TOP + plot_height / 2}) rotate(-90)" '
        'text-anchor="middle">loss / mean square of the targets</text>'
    )
    labels = sorted(curves, key=lambda name: curves[name][-1], reverse=True)
    places: dict[str, float] = {}
    below = -np.inf
    for name in labels:
        below = max(below + 17, y_of(curves[name][-1]))
        places[name] = below
    for (name, values), color in zip(curves.items(), _COLORS, strict=True):
        points = " ".join(
            f"{x_of(i + 1):.1f},{y_of(v):.1f}" for i, v in enumerate(values) if i % 2 == 0
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        start = f'<text x="{_LEFT + plot_width + 8}" y="{places[name] + 4:.1f}" fill="{color}">'
        parts.append(f"{start}{name}</text>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Train and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/underflow.svg"))
    output: Path = parser.parse_args().output
    curves = {name: smooth(curve(*run)) for name, run in RUNS.items()}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(svg(curves), encoding="utf-8")
    for name, values in curves.items():
        print(f"{name}: {values[-1]:.3f}")


if __name__ == "__main__":
    main()
