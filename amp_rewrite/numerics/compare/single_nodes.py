"""One node of a model, run by itself in float32 on inputs from elsewhere.

Evidence: that of misfits.py, which runs nodes so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.errors import AmpError
from amp_rewrite.graph.tensors import known_tensor
from amp_rewrite.numerics.compare.distance import is_float
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.inputs.batches import Array

Values = Mapping[str, Any]
_FEW = 8
"""A constant of at most 8 elements may be a size or a factor of sizes, which is not moved."""


class SingleNode:
    """A node of a model. Constants of floats are inputs, beside those that the node reads.

    Attributes:
        output: The name of its first output.
    """

    def __init__(self, node: ir.Node, model: ir.Model) -> None:
        """Take a node that has no bodies and is no call of a function."""
        self.output = node.outputs[0].name or ""
        self._node, self._model = node, model
        self._floats: dict[str, Array] = {}
        self._others: dict[str, Array] = {}
        for value in node.inputs:
            tensor = known_tensor(value)
            if value is not None and tensor is not None:
                numbers = tensor.numpy()
                held = self._floats if numbers.dtype == FLOAT32.numpy else self._others
                held[value.name or ""] = numbers
        self._evaluator: Evaluator | None = None

    def results(self, feeds: Values, low: DType) -> tuple[Array, Array] | None:
        """Return the first output, and what it is where all floats move by a rounding to `low`.

        Args:
            feeds: What the node reads besides constants: float32, or what the model has there.
            low: The type. Every number moves by half a unit in its last place, up or down.

        Returns:
            None where the runtime does not run the node by itself.
        """
        held = {**self._floats, **feeds}
        rng = np.random.default_rng(0)
        try:
            if self._evaluator is None:
                self._evaluator = Evaluator(self._model_of_node(held))
            exact = self._evaluator.run(held)[self.output]
            moved = {n: self._move_input(n, value, low, rng) for n, value in held.items()}
            return exact, self._evaluator.run(moved)[self.output]
        except AmpError:
            return None

    def _move_input(self, name: str, value: Array, low: DType, rng: np.random.Generator) -> Array:
        if not is_float(value) or (name in self._floats and value.size <= _FEW):
            return value
        with np.errstate(over="ignore", invalid="ignore"):
            step = np.abs(value) * (low.epsilon / 2) + low.smallest_subnormal / 2
            moved = (value + step * rng.choice([-1.0, 1.0], value.shape)).astype(value.dtype)
        return np.where(np.isfinite(moved) & (value != 0), moved, value)

    def _model_of_node(self, feeds: Values) -> onnx.ModelProto:
        graph = onnx.helper.make_graph(
            [ir.serde.serialize_node(self._node)],
            "node",
            [
                onnx.helper.make_tensor_value_info(
                    name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim
                )
                for name, value in feeds.items()
            ],
            [onnx.helper.make_tensor_value_info(self.output, FLOAT32.number, None)],
            [onnx.numpy_helper.from_array(value, n) for n, value in self._others.items()],
        )
        opsets = [
            onnx.helper.make_opsetid(domain, version)
            for domain, version in self._model.graph.opset_imports.items()
        ]
        return onnx.helper.make_model(
            graph, opset_imports=opsets, ir_version=self._model.ir_version
        )
