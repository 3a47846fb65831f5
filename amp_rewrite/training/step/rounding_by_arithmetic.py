"""What an update rounds to a low type, rounded by float32 arithmetic in front of the Cast.

Of types that the processor has no instructions for, OpenVINO leaves out Casts to them and back:
stochastic rounding finds no neighbours there, compensation nothing that was lost, and where a state
is written in bfloat16, 2026.4.1 cuts off half of what it should round up. Slots in bfloat16 shrank
by .0014 in each step; slots in float16 were rounded to nearest, so that small steps were lost.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from amp_rewrite import dtypes
from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.graph.step_part import Part, part_of
from amp_rewrite.graph.traverse import graphs_in
from amp_rewrite.training.builder.builder import Builder

_LARGEST = 2.0**100
"""Beyond this a product with the factor may overflow: such numbers are left to the Cast."""


def round_by_arithmetic(model: ir.Model, lacking: Collection[DType]) -> None:
    """Let Casts of updates read float32 numbers that their types hold, in place; types are known.

    Args:
        model: A step.
        lacking: The types that the engine does not round to.
    """
    whole = Builder(model, scope="rounding", part=Part.UPDATE)
    for graph in list(graphs_in(model.graph)):
        b = whole if graph is model.graph else whole.child(graph)
        for node in list(graph):
            if node.op_type != "Cast" or part_of(node) is not Part.UPDATE:
                continue
            x, dtype = node.inputs[0], dtypes.of(node.attributes["to"].as_int())
            if x is None or x.dtype is not ir.DataType.FLOAT:
                continue
            if dtype is not None and dtype in lacking:
                node.replace_input_with(0, _rounded(b, x, dtype))
    model.graph.sort()


def _rounded(b: Builder, x: ir.Value, dtype: DType) -> ir.Value:
    """Return float32 numbers rounded to nearest to those that a type holds.

    Normal ones are the leading digits of T. J. Dekker, "A floating-point technique for extending
    the available precision", 1971, https://doi.org/10.1007/BF01397083; subnormal ones are
    whole times the smallest. A sum with a constant, taken off again, is what OpenVINO leaves out.
    """
    product = b.mul(x, dtype.epsilon / FLOAT32.epsilon + 1)
    rounded = b.sub(product, b.sub(product, x))
    size = b.abs(x)
    if dtype.smallest_normal > FLOAT32.smallest_normal:
        least = dtype.smallest_subnormal
        whole = b.mul(b.op("Round", b.mul(x, 1 / least)), least)
        rounded = b.where(b.less(size, dtype.smallest_normal), whole, rounded)
    return b.where(b.less(size, _LARGEST), rounded, x)
