from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from gradient_table import NEWEST, STEP, Differentiated, Fed, Row, differentiate, forward, runner
from thinned import every

from amp_rewrite import to_proto
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.grad import GradientError

T, N, IN, H = 3, 2, 2, 2
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _row(op: str, *, opset: int = 18, rest: tuple[Any, ...] = (), **attributes: Any) -> Row:
    """Return a row with X, W, R, B and `rest`: sequence_lens, initial_h, initial_c, P."""
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    size = GATES[op] * H
    x = (N, T, IN) if attributes.get("layout") else (T, N, IN)
    inputs = (x, (directions, size, IN), (directions, size, H), (directions, 2 * size), *rest)
    return Row(
        op,
        inputs,
        {"hidden_size": H, **attributes},
        opset=opset,
        outputs=3 if op == "LSTM" else 2,
    )


LENGTHS = Fed(np.array([3, 1], np.int32))
EMPTY = Fed(np.array([0, 2], np.int32))
ROWS = [
    *(_row(op, opset=opset) for op in GATES for opset in (16, 18, NEWEST)),
    *(
        _row(op, direction=direction, rest=(LENGTHS,))
        for op in GATES
        for direction in ("reverse", "bidirectional")
    ),
    *(_row(op, rest=(None, (1, N, H))) for op in ("RNN", "GRU")),
    _row("GRU", linear_before_reset=1),
    _row("GRU", linear_before_reset=1, direction="bidirectional"),
    _row("RNN", activations=["Softsign"]),
    _row("LSTM", rest=(None, (1, N, H), (1, N, H))),
    _row("LSTM", rest=(None, (1, N, H), (1, N, H), (1, 3 * H))),
    _row("LSTM", direction="bidirectional", rest=(LENGTHS, (2, N, H), (2, N, H), (2, 3 * H))),
    _row("LSTM", activations=["Sigmoid", "Softsign", "Tanh"]),
    _row("LSTM", clip=0.5),
    _row("LSTM", input_forget=1),
    _row("RNN", rest=(EMPTY, (1, N, H))),
    _row("GRU", direction="reverse", rest=(EMPTY, (1, N, H))),
    _row("LSTM", direction="bidirectional", rest=(EMPTY, (2, N, H), (2, N, H))),
    _row(
        "LSTM",
        activations=["HardSigmoid", "Affine", "ScaledTanh"],
        activation_alpha=[0.3, 0.7, 0.9],
        activation_beta=[0.4, 0.1, 0.8],
    ),
    _row(
        "GRU",
        activations=["Sigmoid", "LeakyRelu", "HardSigmoid", "Elu"],
        direction="bidirectional",
        activation_alpha=[0.2],
    ),
    _row("RNN", activations=["ThresholdedRelu"], activation_alpha=[0.1]),
    # ONNX Runtime has no kernel for batches first.
    *(
        replace(_row(op, layout=1, direction="bidirectional", rest=rest), kernel=False)
        for op, rest in [("RNN", (LENGTHS,)), ("GRU", (None, (N, 2, H))), ("LSTM", (LENGTHS,))]
    ),
]


# A turn of a loop is made alike in every opset.
LOOPED = [row for row in ROWS if row.opset in (16, 18)]
FORMS = [*((row, T) for row in ROWS), *((row, None) for row in LOOPED)]


def _differentiated(
    row: Row, dtype: ir.DataType, *, batch: int | None = N, steps: int | None = T
) -> Differentiated:
    """Differentiate a row whose batch and number of steps are known or not.

    ONNX Runtime has recurrent kernels for float32 only; the plain operators run in any type.
    """
    model = forward(row, dtype, static=True)
    lengths = (batch, steps, IN) if row.attributes.get("layout") else (steps, batch, IN)
    model.graph.inputs[0].shape = ir.Shape(lengths)
    differentiate(model, list(row.floats()))
    rng = np.random.default_rng(11)
    kind = dtype.numpy()
    directions = 2 if row.attributes.get("direction") == "bidirectional" else 1
    states, whole = (directions, N, H), (T, directions, N, H)
    if row.attributes.get("layout"):
        states, whole = (N, directions, H), (N, T, directions, H)
    seeds = {
        f"u{k}": rng.standard_normal(shape).astype(kind)
        for k, shape in enumerate([whole, states, states][: row.outputs])
    }
    floats = {name: x.astype(kind) for name, x in row.floats().items()}
    names = [f"y{k}" for k in range(row.outputs)]
    return Differentiated(runner(model, row, dtype), floats, row.fed(), names, seeds)


@pytest.mark.share(7)
@pytest.mark.parametrize(("row", "steps"), every(FORMS, 2), ids=str)
def test_the_gradient_of_a_recurrent_operator_equals_the_difference_quotient(
    row: Row, steps: int | None
) -> None:
    at = _differentiated(row, ir.DataType.DOUBLE, steps=steps)
    rng = np.random.default_rng(13)
    for name, gradient in at.gradients().items():
        x = at.floats[name]
        direction = rng.standard_normal(x.shape)
        ahead = at.loss({**at.floats, name: x + STEP * direction})
        behind = at.loss({**at.floats, name: x - STEP * direction})
        numeric, exact = (ahead - behind) / (2 * STEP), float(np.sum(direction * gradient))
        scale = float(np.sum(np.abs(direction * gradient)))
        assert abs(numeric - exact) <= FLOAT32.rtol * scale + FLOAT32.atol, name


@pytest.mark.share(9)
@pytest.mark.parametrize(("row", "steps"), FORMS[::5], ids=str)
def test_a_recurrent_operator_takes_a_batch_of_any_size(row: Row, steps: int | None) -> None:
    exact = _differentiated(row, ir.DataType.DOUBLE).gradients()
    found = _differentiated(row, ir.DataType.FLOAT, batch=None, steps=steps).gradients()
    for name, gradient in found.items():
        scale = max(1.0, float(np.abs(exact[name]).max()))
        assert np.abs(gradient - exact[name]).max() <= 32 * FLOAT32.rtol * scale, name


def _kernel(row: Row, feeds: dict[str, Any], names: list[str]) -> list[Any]:
    """Return what the kernel computes in float32; that of GRU ends the process without a step."""
    if not len(feeds["x0"]):
        states = np.zeros((2, N, H), "f")
        return [np.zeros((0, 2, N, H), "f"), *([states] * (row.outputs - 1))]
    model = to_proto(forward(row, ir.DataType.FLOAT, static=False)).SerializeToString()
    session: Any = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(names, feeds)


@pytest.mark.parametrize("op", GATES)
def test_one_model_trains_on_sequences_of_any_length(op: str) -> None:
    row = _row(op, direction="bidirectional", rest=(None, (2, N, H)))
    at = _differentiated(row, ir.DataType.FLOAT, steps=None, batch=None)
    for steps in (0, 1, 5):
        x = np.random.default_rng(steps).standard_normal((steps, N, IN)).astype("f")
        feeds = {**at.floats, "x0": x}
        expected = _kernel(row, feeds, at.outputs)
        seeds = {f"u{k}": np.ones_like(y) for k, y in enumerate(expected)}
        *found, gradient = at.run([*at.outputs, "g_x1"], {**feeds, **seeds})
        for y, exact in zip(found, expected, strict=True):
            assert (y.shape, y.dtype) == (exact.shape, exact.dtype)
            np.testing.assert_allclose(y, exact, rtol=FLOAT32.rtol, atol=FLOAT32.atol)
        assert gradient.any() == (steps > 0)


@pytest.mark.parametrize(
    ("row", "what"),
    [
        (_row("GRU", activations=["Swish", "Tanh"]), r"activation Swish is unknown"),
        (_row("RNN", activations=["Affine"]), r"Affine lacks its activation_alpha"),
        (_row("LSTM", activations=["Sigmoid"]), r"names 1 activations instead of 3"),
    ],
)
def test_a_recurrent_operator_that_cannot_be_spelled_out_is_refused(row: Row, what: str) -> None:
    model = forward(row, ir.DataType.FLOAT, static=True)
    with pytest.raises(GradientError, match=r"node 'node'.*" + what + ".*standard"):
        differentiate(model, ["x0"])
