"""The scale of embeddings is a constant, whatever its name is; other numbers are trained."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import amp_rewrite as amp

SCALE = "embed.embed_scale"


def trained(scale: float, nodes: str) -> list[str]:
    """Return the names of what is trained of a table with rows of 16 and a number."""
    text = f"""<ir_version: 8, opset_import: ["": 17]>
        g (int64[N] x) => (float loss) <float[5, 16] "embed.weight", float "{SCALE}"> {{
            rows = Gather ("embed.weight", x)
            {nodes}
            s = Mul (h, h)
            loss = ReduceMean <keepdims = 0> (s)
        }}"""
    model = parser.parse_model(text)
    del model.graph.value_info[:]
    for name, array in {"embed.weight": np.ones((5, 16)), SCALE: np.array(scale)}.items():
        tensor = onnx.numpy_helper.from_array(array.astype(np.float32), name)
        model.graph.initializer.append(tensor)
    loss = amp.value(amp.load(model), "loss")
    return sorted(state.name for state in loss.graph.variables(loss.value))


@pytest.mark.parametrize("scale", [4.0, 3.984375])  # the second as bfloat16 rounds
@pytest.mark.parametrize(
    "nodes",
    [
        f'h = Mul (rows, "{SCALE}")',
        f'h = Mul ("{SCALE}", rows)',
        f'c = Cast <to = 1> ("{SCALE}") r = Cast <to = 1> (rows) h = Mul (r, c)',
    ],
)
def test_the_root_of_the_length_of_rows_is_a_constant(nodes: str, scale: float) -> None:
    assert trained(scale, nodes) == ["embed.weight"]


@pytest.mark.parametrize(
    ("scale", "nodes"),
    [
        (1.0, f'h = Mul (rows, "{SCALE}")'),
        (4.0, f't = Tanh (rows) h = Mul (t, "{SCALE}")'),
        (4.0, f'h = Add (rows, "{SCALE}")'),
    ],
)
def test_another_number_is_trained(scale: float, nodes: str) -> None:
    assert trained(scale, nodes) == [SCALE, "embed.weight"]
