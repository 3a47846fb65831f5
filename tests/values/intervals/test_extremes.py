"""Every rule of intervals, asked about the largest, least and broken numbers: none ends."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import amp_rewrite as amp
from amp_rewrite.errors import AmpError
from amp_rewrite.values.intervals.propagate import RULES

ATTRIBUTES: dict[str, dict[str, Any]] = {
    "Cast": {"to": TensorProto.FLOAT16},
    "Concat": {"axis": 0},
    "DepthToSpace": {"blocksize": 1},
    "Einsum": {"equation": "ij,ij->i"},
    "GroupNormalization": {"num_groups": 1},
    "LRN": {"size": 1},
    "SpaceToDepth": {"blocksize": 1},
    "AveragePool": {"kernel_shape": [1]},
    "LpPool": {"kernel_shape": [1]},
    "MaxPool": {"kernel_shape": [1]},
}
"""What an operator cannot do without."""

EXTREMES = (math.inf, -math.inf, math.nan, 3e38, -3e38, 1e5, -1e5, 1e-45, -1e-45, 0.0, 0.5)


def operators() -> list[tuple[str, int]]:
    """Return the operators of ai.onnx that have a rule, and how many inputs each is given."""
    schemas = {
        name: onnx.defs.get_schema(name, 24) for name in RULES[""] if onnx.defs.has(name, 24)
    }
    return [(n, max(s.min_input, 2 if s.max_input > 1 else 1)) for n, s in schemas.items()]


@pytest.mark.parametrize(("op", "count"), operators())
def test_no_number_ends_a_rule(op: str, count: int) -> None:
    schema = onnx.defs.get_schema(op, 24)
    ran = 0
    for first, number in itertools.product(("s", "c"), EXTREMES):
        others = [f"c{k}" for k in range(count - 1)]
        read = [first, *others]
        nodes = [
            helper.make_node("Sigmoid", ["x"], ["s"]),
            helper.make_node(op, read, ["r"], name="asked", **ATTRIBUTES.get(op, {})),
            helper.make_node("Mul", ["r", "s"], ["y"]),
        ]
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])]
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
        constants = [
            numpy_helper.from_array(np.full((2, 4), number, np.float32), name)
            for name in ("c", *others)
        ]
        graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])
        model.ir_version = 11
        try:
            amp.rewrite(model)
        except AmpError:
            continue  # it takes no such inputs
        ran += 1
    asks_for = {entry.type_str for entry in schema.inputs[:count]}
    assert ran or len(asks_for) > 1, "no model was valid"
