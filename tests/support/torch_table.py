"""Compare gradients with those of PyTorch, where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from gradient_table import Array, Row, prepare

from amp_rewrite.dtypes import FLOAT32


@dataclass(frozen=True)
class TorchRow:
    """One use of one operator, and the same in PyTorch.

    Attributes:
        row: The row of the gradient table.
        function: (torch, float inputs in order) -> the output, or a tuple of them.
    """

    row: Row
    function: Callable[..., Any]

    def __str__(self) -> str:
        """Name the row in a test's name."""
        return str(self.row)


def check_torch(case: TorchRow) -> None:
    """Compare outputs and gradients in float64, element by element."""
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")
    at = prepare(case.row, ir.DataType.DOUBLE, static=True)
    inputs = [torch.tensor(x, requires_grad=True) for x in at.floats.values()]
    outputs = case.function(torch, *inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    expected = at.run(at.outputs, {**at.others, **at.floats, **at.seeds})
    for found, output in zip(expected, outputs, strict=True):
        _close(found, output.detach().numpy())
    seeds = [torch.tensor(u) for u in at.seeds.values()]
    gradients = torch.autograd.grad(outputs, inputs, seeds)
    for found, gradient in zip(at.gradients().values(), gradients, strict=True):
        _close(found, gradient.numpy())


def _close(found: Array, expected: Array) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=FLOAT32.rtol, atol=FLOAT32.atol)
