"""What a rule cannot know is an error that names the node and the remedy."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from gradient_table import Constant, Row, differentiate, forward

from amp_rewrite.grad import GradientError

RANKS = [
    (Row("MatMul", ((2, 3), (3, 4))), r"node 'node'.*ranks of a product's operands"),
    (Row("Einsum", ((2, 3),), {"equation": "...i->..."}), r"node 'node'.*ellipsis needs the rank"),
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


@pytest.mark.parametrize("row", PADS, ids=str)
def test_padding_by_lengths_that_are_not_known_is_refused(row: Row) -> None:
    model = forward(row, ir.DataType.FLOAT, static=False)
    with pytest.raises(GradientError, match=r"node 'node'.*leaves open.*fix them"):
        differentiate(model, ["x0"])
