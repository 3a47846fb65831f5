"""Add up in a low type: term by term in a Scan, as a kernel was measured to, or in chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32, FLOAT64, DType
from amp_rewrite.kernels.accumulation import SumOrder
from amp_rewrite.numerics.emulate.node_collector import NodeCollector

CHUNK = 16
"""Terms that are summed before the running sum is rounded: the depth of one mma.sync m16n8k16."""

_NOTHING = -0.0
"""What changes no term that is added to it: 0 + -0 is 0."""

Sliced = tuple[ir.Value, int]
"""A value, and the axis along which it is cut."""
Partial = Callable[[NodeCollector, Sequence[ir.Value]], ir.Value]
"""Adds the nodes that sum one chunk of each operand."""


@dataclass(frozen=True)
class Adder:
    """Adds up in a low type.

    Attributes:
        dtype: The type.
        order: How; None for chunks of 16 that are summed in float32.
    """

    dtype: DType
    order: SumOrder | None

    def add_up(
        self,
        nodes: NodeCollector,
        operands: Sequence[Sliced],
        length: int | None,
        partial: Partial,
        begin: ir.Value | None = None,
    ) -> ir.Value:
        """Return the sum of all terms.

        Args:
            nodes: Takes the nodes.
            operands: What is cut into chunks, and along which axis.
            length: The number of terms, if it is known.
            partial: Adds the nodes that sum a part of each operand in float32.
            begin: What the running sum begins with; None for nothing. Only sums that `rounds_once`
                begin with something.
        """
        chunk = self._chunk(length)
        if chunk == 1:
            return self._one_by_one(nodes, operands, partial, begin)
        return self._in_chunks(nodes, operands, chunk, partial)

    @property
    def rounds_once(self) -> bool:
        """Whether a product and the sum that it joins are rounded once: they are added as doubles.

        float32 holds a product, but not its sum with the running sum.
        """
        return self.order is not None and self.order.fused

    @property
    def _type(self) -> ir.DataType:
        return FLOAT64.ir if self.rounds_once else FLOAT32.ir

    def round(self, nodes: NodeCollector, value: ir.Value) -> ir.Value:
        """Round to the low type."""
        return nodes.round(value, self.dtype)

    def _chunk(self, length: int | None) -> int:
        if self.order is None:
            return CHUNK
        fits = length is None or length % self.order.chunk == 0
        return self.order.chunk if fits and not self.rounds_once else 1

    def _one_by_one(
        self,
        nodes: NodeCollector,
        operands: Sequence[Sliced],
        partial: Partial,
        begin: ir.Value | None,
    ) -> ir.Value:
        """Add term after term in a Scan, which reads its operands in place."""
        start = self._start(nodes, operands, partial, begin)
        body = nodes.nested("term")
        total = body.value("total", self._type)
        parts = [body.value("part", FLOAT32.ir) for _ in operands]
        joined = self._join(body, total, parts, partial)
        graph = ir.Graph([total, *parts], [joined], nodes=body.made, name=f"{total.name}/body")
        cut, axes = list[ir.Value](), list[int]()
        for value, axis in operands:  # a part keeps the axis that is cut, with the length 1
            one = axis if axis >= 0 else axis - 1
            cut.append(nodes.add("Unsqueeze", [value, nodes.ints(one)]))
            axes.append(one + 1)
        attributes = [
            ir.AttrGraph("body", graph),
            ir.AttrInt64("num_scan_inputs", len(cut)),
            ir.AttrInt64s("scan_input_axes", axes),
        ]
        result = nodes.add("Scan", [start, *cut], attributes, self._type)
        return nodes.cast(result, FLOAT32.ir) if self.rounds_once else result

    def _start(
        self,
        nodes: NodeCollector,
        operands: Sequence[Sliced],
        partial: Partial,
        begin: ir.Value | None,
    ) -> ir.Value:
        """Return what a sum begins with, in its shape."""
        shape = nodes.add("Shape", [_part(nodes, operands, nodes.ints(0), 1, partial)])
        nothing = ir.AttrTensor("value", ir.Tensor(np.array([_NOTHING], self._type.numpy())))
        empty = nodes.add("ConstantOfShape", [shape], [nothing], self._type)
        return empty if begin is None else nodes.add("Add", [nodes.cast(begin, self._type), empty])

    def _join(
        self, nodes: NodeCollector, total: ir.Value, parts: Sequence[ir.Value], partial: Partial
    ) -> ir.Value:
        """Return the running sum with the next term."""
        if self.rounds_once:
            term = partial(nodes, [nodes.cast(part, FLOAT64.ir) for part in parts])
            return round_doubles(nodes, nodes.add("Add", [total, term]), self.dtype)
        term = self.round(nodes, partial(nodes, parts))
        return self.round(nodes, nodes.add("Add", [total, term]))

    def _in_chunks(
        self, nodes: NodeCollector, operands: Sequence[Sliced], chunk: int, partial: Partial
    ) -> ir.Value:
        """Sum the first chunk, then the others in a Loop."""
        value, axis = operands[0]
        size = nodes.add("Gather", [nodes.add("Shape", [value]), nodes.ints(axis)])
        rest = nodes.add("Div", [nodes.add("Sub", [size, nodes.ints(1)]), nodes.ints(chunk)])
        trips = nodes.add("Squeeze", [rest])
        sum_ = self._chunk_sum(nodes, operands, nodes.ints(0), chunk, partial)
        first = self.round(nodes, sum_)
        body = ir.AttrGraph("body", self._body(nodes, operands, chunk, partial))
        return nodes.add("Loop", [trips, None, first], [body], FLOAT32.ir)

    def _body(
        self, outer: NodeCollector, operands: Sequence[Sliced], chunk: int, partial: Partial
    ) -> ir.Graph:
        """Return the Loop's body: add chunk i + 1 to the running sum and round."""
        nodes = outer.nested("chunk")
        index = nodes.value("i", ir.DataType.INT64, ir.Shape([]))
        again = nodes.value("again", ir.DataType.BOOL, ir.Shape([]))
        total = nodes.value("total", FLOAT32.ir)
        number = nodes.add("Add", [index, nodes.ints(1)])
        start = nodes.add("Mul", [number, nodes.ints(chunk)])
        added = nodes.add("Add", [total, self._chunk_sum(nodes, operands, start, chunk, partial)])
        on = nodes.add("Identity", [again], type_=ir.DataType.BOOL)
        outputs = [on, self.round(nodes, added)]
        name = f"{total.name}/body"
        return ir.Graph([index, again, total], outputs, nodes=nodes.made, name=name)

    def _chunk_sum(
        self,
        nodes: NodeCollector,
        operands: Sequence[Sliced],
        start: ir.Value,
        chunk: int,
        partial: Partial,
    ) -> ir.Value:
        """Return the sum of one chunk: of rounded terms, or in float32 where there is no order."""
        if self.order is None:
            return _part(nodes, operands, start, chunk, partial)
        total = self.round(nodes, _part(nodes, operands, start, 1, partial))
        for i in range(1, chunk):
            place = nodes.add("Add", [start, nodes.ints(i)])
            term = self.round(nodes, _part(nodes, operands, place, 1, partial))
            total = self.round(nodes, nodes.add("Add", [total, term]))
        return total


def round_doubles(nodes: NodeCollector, value: ir.Value, dtype: DType) -> ir.Value:
    """Round doubles to a low type, to nearest and ties to even; the result is in doubles.

    A Cast rounds to float32 on the way, which moves a number in 8,192. So what the low type cannot
    hold is rounded away, by adding and subtracting 1.5 * 2^52 units in its last place. The unit is
    found in float32, the gap to the number before times 2^13 for float16: x - (1 - 2^-24) x. A
    power of two has half that gap before it, and is rounded right all the same. Below the normal
    numbers the unit is that of all numbers there. What is too large becomes infinite by a factor.
    """
    size = nodes.add("Abs", [nodes.cast(value, FLOAT32.ir)])
    least, most = nodes.number(1.5 * dtype.smallest_normal), nodes.number(dtype.max)
    size = nodes.add("Min", [nodes.add("Max", [size, least]), most])
    before = nodes.add("Mul", [size, nodes.number(1 - FLOAT32.epsilon / 2)])
    gap = nodes.cast(nodes.add("Sub", [size, before]), FLOAT64.ir)
    units = 1.5 / FLOAT64.epsilon * dtype.epsilon / FLOAT32.epsilon
    shift = nodes.add("Mul", [gap, nodes.double(units)])
    rounded = nodes.add("Sub", [nodes.add("Add", [value, shift]), shift])
    factor = 2.0 ** (1024 - math.frexp(dtype.max)[1])
    large = nodes.add("Mul", [rounded, nodes.double(factor)])
    return nodes.add("Mul", [large, nodes.double(1 / factor)], type_=FLOAT64.ir)


def known_shape(value: ir.Value) -> list[int] | None:
    """Return the shape of a value; None if a length is not known."""
    shape = value.shape
    maker = value.producer()
    if shape is None and maker is not None and maker.op_type == "Cast":  # of a low constant
        return None if maker.inputs[0] is None else known_shape(maker.inputs[0])
    if shape is None and maker is not None and maker.op_type == "Constant":
        tensor = maker.attributes.get("value")
        shape = None if tensor is None else tensor.as_tensor().shape
    if shape is None:
        return None
    lengths = [length for length in shape if isinstance(length, int)]
    return lengths if len(lengths) == len(shape) else None


def length_of(value: ir.Value, axis: int) -> int | None:
    """Return the length of an axis; None if it is not known."""
    shape = known_shape(value) if value.shape is None else value.shape
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    length = shape[axis]
    return length if isinstance(length, int) else None


def operands_of(node: ir.Node) -> list[ir.Value]:
    """Return what a node adds up, or multiplies: its first two inputs."""
    return [value for value in node.inputs[:2] if value is not None]


def _part(
    nodes: NodeCollector,
    operands: Sequence[Sliced],
    start: ir.Value,
    length: int,
    partial: Partial,
) -> ir.Value:
    """Return what is computed of some terms of each operand."""
    end = nodes.add("Add", [start, nodes.ints(length)])
    return partial(nodes, [nodes.add("Slice", [v, start, end, nodes.ints(n)]) for v, n in operands])
