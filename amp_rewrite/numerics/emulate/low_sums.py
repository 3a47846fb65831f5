"""Sums that are accumulated in the 16-bit type, chunk by chunk.

An operator that is only named adds up as tensor cores do: chunks of 16 terms, in order, are summed
in float32, and the running sum is rounded after every chunk. Where a target was measured
(accumulation.py), every product and every sum is rounded, in the order of its kernels; several
running sums (lanes) count as chunks of 16. A reduction over several axes is done axis by axis, the
last one first. Gemm adds `beta * C`, Conv its bias, and a mean divides, at the end, with one more
rounding. A Scan or a Loop does it, much slower than the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.dtypes import DType
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.added import AddedNames
from amp_rewrite.graph.traits import Trait, has
from amp_rewrite.kernels.accumulation import SumOrder, load
from amp_rewrite.numerics.emulate.adder import Adder
from amp_rewrite.numerics.emulate.low_products import conv, filter_sizes, gemm, matmul
from amp_rewrite.numerics.emulate.low_reductions import (
    average_pool,
    axes_of,
    global_average,
    reduce_mean,
    reduce_sum,
)
from amp_rewrite.numerics.emulate.low_steps import STEPS
from amp_rewrite.numerics.emulate.node_collector import NodeCollector
from amp_rewrite.targets import Target

OLDEST_OPSET = 13
"""The first opset where ReduceSum and Squeeze take their axes as an input."""

Sums = Mapping[str, Sequence[SumOrder | None]]
"""Operator -> how it adds up, the first order whose condition holds; None for chunks of 16."""


def sums_of(operators: Collection[str] | Sums) -> Sums:
    """Return how operators add up, of orders or of bare names.

    Raises:
        OptionError: An operator has no rule, or a bare string was given.
    """
    for name in arguments.texts("accumulate_low", operators):
        if name not in _RULES and name not in STEPS:
            raise OptionError(
                "accumulate_low does not know how to accumulate in the 16-bit type",
                found=repr(name),
                expected=", ".join(_RULES),
            )
    return operators if isinstance(operators, Mapping) else dict.fromkeys(operators, (None,))


def kept_low(target: Target, low: DType, opset: int = OLDEST_OPSET) -> Sums:
    """Return how a target's kernels add up, of the operators that keep partial sums in `low`.

    A group of targets has the sums of each. In a model of too old an opset sums are float32.
    """
    if opset < OLDEST_OPSET:
        return {}
    if target.parts:
        return {op: sums for part in target.parts for op, sums in kept_low(part, low).items()}
    table = load(target.provider)
    if table is None:
        return dict.fromkeys(_RULES, (None,)) if target.accumulates_in is low else {}
    measured = {op: table.sums.get(("", op), ()) for op in _RULES}
    kept = {op: rows for op, rows in measured.items() if any(row.type is low for row in rows)}
    rounded = (op for op in STEPS if table.steps.get(("", op)) is low)
    return kept | {op: (SumOrder(low),) for op in rounded}


def accumulates_low(node: ir.Node, sums: Sums) -> bool:
    """Return whether the sums of a node are accumulated in the 16-bit type.

    Those of a Conv of unknown window or channels are not, nor of an AveragePool with windows that
    end after the padding (ceil_mode), nor of a reduction over axes that the model computes. That is
    an error if the user has named the reduction.
    """
    if node.domain != "" or node.op_type not in sums:
        return False
    if node.op_type in STEPS:
        return len(node.outputs) == 1  # not BatchNormalization in training mode
    if node.op_type == "AveragePool":
        return node.attributes.get_int("ceil_mode", 0) == 0
    if has(node, Trait.SUMS_UP):
        return None in sums[node.op_type] or axes_of(node) is not None
    return node.op_type != "Conv" or filter_sizes(node) is not None


def accumulation(
    node: ir.Node, dtype: DType, opset: int, names: AddedNames, sums: Sums
) -> tuple[list[ir.Node], ir.Value]:
    """Return nodes that compute what a node does and accumulate in `dtype`, and their result.

    Raises:
        OptionError: The opset is too old, or a reduction's axes are computed by the model.
    """
    if opset < OLDEST_OPSET:
        raise OptionError(
            "accumulate_low needs a newer opset",
            where=node.name,
            found=opset,
            expected=f"at least {OLDEST_OPSET}",
            remedy="convert the model with onnx.version_converter",
        )
    nodes = NodeCollector(node.outputs[0].name or "", names)
    if node.op_type in STEPS:
        result = STEPS[node.op_type](nodes, node, dtype)
    else:
        result = _RULES[node.op_type](nodes, node, Adder(dtype, _order_of(node, sums)))
    return nodes.made, result


def _order_of(node: ir.Node, sums: Sums) -> SumOrder | None:
    for order in sums[node.op_type]:
        if order is None or all(node.attributes.get_int(n, 0) == v for n, v in order.when):
            return None if order is None or order.lanes > 1 else order
    return None


_RULES: dict[str, Callable[[NodeCollector, ir.Node, Adder], ir.Value]] = {
    "AveragePool": average_pool,
    "Conv": conv,
    "Gemm": gemm,
    "GlobalAveragePool": global_average,
    "MatMul": matmul,
    "ReduceMean": reduce_mean,
    "ReduceSum": reduce_sum,
}
