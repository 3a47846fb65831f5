"""What a rule cannot know is an error that names the node and the remedy."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from gradient_nodes import close, vjp
from gradient_table import Constant, Row, differentiate, forward

import amp_rewrite as amp
from amp_rewrite.grad import GradientError

RANKS = [
    (Row("MatMul", ((2, 3), (2, 3, 4))), r"node 'node'.*rank of the input"),
    (Row("Einsum", ((2, 3),), {"equation": "...i->..."}), r"node 'node'.*rank of the input"),
    (Row("LayerNormalization", ((2, 3), (3,))), r"node 'node'.*rank of the input"),
    (Row("Resize", ((2, 3), None, Constant([1.0, 2.0]))), r"node 'node'.*rank of the input"),
    (Row("LpPool", ((2, 3, 4),), {"kernel_shape": [2]}), r"value 'x0'.*rank of a value"),
]
PADS = [
    Row("Conv", ((2, 3, 5), (4, 3, 3)), {"auto_pad": "SAME_UPPER", "strides": [2]}),
    Row(
        "AveragePool", ((2, 3, 5),), {"auto_pad": "SAME_LOWER", "strides": [2], "kernel_shape": [3]}
    ),
    Row("ConvTranspose", ((2, 3, 5), (3, 2, 3)), {"output_shape": [12], "strides": [2]}),
]


@pytest.mark.parametrize(("row", "message"), RANKS, ids=lambda v: getattr(v, "op", None))
def test_a_rule_that_needs_a_rank_says_so(row: Row, message: str) -> None:
    model = forward(row, ir.DataType.FLOAT, static=False)
    for value in model.graph.inputs:
        value.shape = None
    with pytest.raises(GradientError, match=message + r".*value_info"):
        differentiate(model, ["x0"])


@pytest.mark.parametrize(
    "row", [Row("MatMul", ((2, 3, 4), (4, 5))), Row("MatMul", ((4,), (4, 5)))], ids=str
)
def test_a_matrix_tells_enough_of_data_of_unknown_rank(row: Row) -> None:
    expected = vjp(row)
    for name, gradient in vjp(row, rankless=["x0"]).items():
        close(gradient, expected[name])


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_a_convolution_has_the_rank_of_its_weights(op: str) -> None:
    feeds = {"x": np.arange(24, dtype=np.float32).reshape(2, 3, 4), "to": np.array([2, 3, 4])}
    known, unknown = (step_of(op, rank, feeds) for rank in ("3", "k"))
    np.testing.assert_array_equal(known, unknown)
    assert known.any()


def step_of(op: str, rank: str, feeds: dict[str, np.ndarray]) -> np.ndarray:
    """Return how a step changes the weights over what was reshaped to lengths that are fed."""
    proto = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[2, 3, 4] x, int64[{rank}] to) => (float loss) {{
        first = Mul(x, scale)
        reshaped = Reshape(first, to)
        y = {op}(reshaped, w)
        z = Mul(y, y)
        loss = ReduceMean<keepdims = 0>(z)
    }}""")
    for name, shape in {"w": (3, 3, 2), "scale": (3, 4)}.items():
        array = np.ones(shape, np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    train_op = amp.optimizers.GradientDescent(1e-3).minimize(amp.value(amp.load(proto), "loss"))
    with amp.TrainingSession(train_op) as session:
        session.run(feeds)
        after = session.state_dict()
    return np.concatenate([after[name].ravel() - 1 for name in ("w", "scale")])


@pytest.mark.parametrize("row", PADS, ids=str)
def test_padding_by_lengths_that_are_not_known_is_refused(row: Row) -> None:
    model = forward(row, ir.DataType.FLOAT, static=False)
    with pytest.raises(GradientError, match=r"node 'node'.*leaves open.*fix them"):
        differentiate(model, ["x0"])
