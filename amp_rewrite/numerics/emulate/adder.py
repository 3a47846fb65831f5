"""Add up in a 16-bit type: term by term in a Scan, as a kernel was measured to, or in chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32, FLOAT64, DType
from amp_rewrite.graph.tensors import known_tensor
from amp_rewrite.kernels.accumulation import SumOrder
from amp_rewrite.numerics.emulate.node_collector import NodeCollector

CHUNK = 16
"""Terms that are summed before the running sum is rounded: the depth of one mma.sync m16n8k16."""

_NOTHING = -0.0
"""The number that changes no term added to it: 0 + -0 is 0."""

Sliced = tuple[ir.Value, int | ir.Value]
"""A value, and the axis along which it is cut: a 1-D int64 value where it depends on the rank."""
Partial = Callable[[NodeCollector, Sequence[ir.Value]], ir.Value]
"""Adds the nodes that sum one chunk of each operand."""


@dataclass(frozen=True)
class Adder:
    """Adds up in a 16-bit type, in an order; None for chunks of 16 that are summed in float32."""

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

        The operands are cut into chunks, which `partial` sums in float32; `length` is the number of
        terms. Only sums that `rounds_once` can begin with a value.
        """
        return _Sum(self, operands, partial).of(nodes, length, begin)

    @property
    def rounds_once(self) -> bool:
        """Whether a product and the sum that it joins are rounded once: they are added as doubles.

        float32 holds a product, but not its sum with the running sum.
        """
        return self.order is not None and self.order.fused

    def round(self, nodes: NodeCollector, value: ir.Value) -> ir.Value:
        """Round to the 16-bit type."""
        return nodes.round(value, self.dtype)


@dataclass(frozen=True)
class _Sum:
    """One sum of an adder."""

    adder: Adder
    operands: Sequence[Sliced]
    partial: Partial

    @property
    def _type(self) -> ir.DataType:
        return FLOAT64.ir if self.adder.rounds_once else FLOAT32.ir

    def of(self, nodes: NodeCollector, length: int | None, begin: ir.Value | None) -> ir.Value:
        """Return the sum of all terms."""
        start = self._start(nodes, begin)
        order, chunk, rank = self.adder.order, CHUNK, _rank_of_sum(self.operands)
        if order is not None:
            fits = length is None or length % order.chunk == 0
            chunk = order.chunk if fits and not order.fused else 1
        if chunk == 1 and rank is not None:
            total = self._scan(nodes, start, rank)
        else:
            total = self._loop(nodes, start, chunk)
        return nodes.cast(total, FLOAT32.ir) if self.adder.rounds_once else total

    def _scan(self, nodes: NodeCollector, start: ir.Value, rank: int) -> ir.Value:
        """Add term after term in a Scan, which has no place to compute and copies no part.

        ONNX Runtime asks for the rank of what it carries.
        """
        body = nodes.nested("term")
        total = body.value("total", self._type)
        parts = [body.value("part", FLOAT32.ir) for _ in self.operands]
        joined = self._join(body, total, parts)
        joined.shape = ir.Shape([None] * rank)
        graph = ir.Graph([total, *parts], [joined], nodes=body.made, name=f"{total.name}/body")
        cut, axes = list[ir.Value](), list[int]()
        for value, axis in self.operands:  # a part keeps the axis that is cut, with the length 1
            assert isinstance(axis, int), "the rank is known"
            one = axis if axis >= 0 else axis - 1
            cut.append(nodes.add("Unsqueeze", [value, nodes.ints(one)]))
            axes.append(one + 1)
        attributes = [
            ir.AttrGraph("body", graph),
            ir.AttrInt64("num_scan_inputs", len(cut)),
            ir.AttrInt64s("scan_input_axes", axes),
        ]
        return nodes.add("Scan", [start, *cut], attributes, self._type)

    def _start(self, nodes: NodeCollector, begin: ir.Value | None) -> ir.Value:
        """Return the value that a sum begins with, in its shape."""
        first = self.partial(nodes, self._parts(nodes, nodes.ints(0), 1))
        shape = nodes.add("Shape", [first])
        nothing = ir.AttrTensor("value", ir.Tensor(np.array([_NOTHING], self._type.numpy())))
        empty = nodes.add("ConstantOfShape", [shape], [nothing], self._type)
        return empty if begin is None else nodes.add("Add", [nodes.cast(begin, self._type), empty])

    def _join(self, nodes: NodeCollector, total: ir.Value, parts: Sequence[ir.Value]) -> ir.Value:
        """Return the running sum with the next term."""
        if self.adder.rounds_once:
            term = self.partial(nodes, [nodes.cast(part, FLOAT64.ir) for part in parts])
            return round_doubles(nodes, nodes.add("Add", [total, term]), self.adder.dtype)
        term = self.adder.round(nodes, self.partial(nodes, parts))
        return self.adder.round(nodes, nodes.add("Add", [total, term]))

    def _loop(self, nodes: NodeCollector, start: ir.Value, chunk: int) -> ir.Value:
        """Add chunk after chunk in a Loop."""
        value, axis = self.operands[0]
        length = nodes.add("Gather", [nodes.add("Shape", [value]), _axis(nodes, axis)])
        more = nodes.add("Add", [length, nodes.ints(chunk - 1)])
        trips = nodes.add("Squeeze", [nodes.add("Div", [more, nodes.ints(chunk)])])
        body = nodes.nested("chunk")
        index = body.value("i", ir.DataType.INT64, ir.Shape([]))
        again = body.value("again", ir.DataType.BOOL, ir.Shape([]))
        total = body.value("total", self._type)
        place = body.add("Mul", [index, body.ints(chunk)])
        joined = self._joined_chunk(body, total, place, chunk)
        on = body.add("Identity", [again], type_=ir.DataType.BOOL)
        name = f"{total.name}/body"
        graph = ir.Graph([index, again, total], [on, joined], nodes=body.made, name=name)
        return nodes.add("Loop", [trips, None, start], [ir.AttrGraph("body", graph)], self._type)

    def _joined_chunk(
        self, nodes: NodeCollector, total: ir.Value, place: ir.Value, chunk: int
    ) -> ir.Value:
        """Return the running sum with the next chunk: of rounded terms, or a sum in float32."""
        if chunk == 1:
            return self._join(nodes, total, self._parts(nodes, place, 1))
        if self.adder.order is None:
            sum_ = self.partial(nodes, self._parts(nodes, place, chunk))
        else:
            first = self.partial(nodes, self._parts(nodes, place, 1))
            sum_ = self.adder.round(nodes, first)
            for i in range(1, chunk):
                next_ = nodes.add("Add", [place, nodes.ints(i)])
                sum_ = self._join(nodes, sum_, self._parts(nodes, next_, 1))
        return self.adder.round(nodes, nodes.add("Add", [total, sum_]))

    def _parts(self, nodes: NodeCollector, start: ir.Value, length: int) -> list[ir.Value]:
        """Return some terms of each operand."""
        end = nodes.add("Add", [start, nodes.ints(length)])
        return [nodes.add("Slice", [v, start, end, _axis(nodes, k)]) for v, k in self.operands]


def round_doubles(nodes: NodeCollector, value: ir.Value, dtype: DType) -> ir.Value:
    """Round doubles to a 16-bit type, to nearest and ties to even; the result is in doubles.

    A Cast rounds to float32 on the way, which moves a number in 8,192. So what the type cannot
    hold is rounded away, by adding and subtracting a number that is so much larger that doubles
    have the low type's spacing there: for float16, 2^42 |x|. It is a float32 number, whose last
    bits as a double are zero, so that ties stay ties. Below the normal numbers the spacing is that
    of the smallest ones. What is too large becomes infinite by a factor.
    """
    least, most = nodes.number(1.5 * dtype.smallest_normal), nodes.number(dtype.max)
    size = nodes.add("Abs", [nodes.cast(value, FLOAT32.ir)])
    size = nodes.cast(nodes.add("Clip", [size, least, most]), FLOAT64.ir)
    shift = nodes.add("Mul", [size, nodes.number(dtype.epsilon / FLOAT64.epsilon, FLOAT64)])
    rounded = nodes.add("Sub", [nodes.add("Add", [value, shift]), shift])
    factor = 2.0 ** (1024 - math.frexp(dtype.max)[1])
    large = nodes.add("Mul", [rounded, nodes.number(factor, FLOAT64)])
    return nodes.add("Mul", [large, nodes.number(1 / factor, FLOAT64)], type_=FLOAT64.ir)


def known_shape(value: ir.Value) -> list[int] | None:
    """Return the shape of a value; None if a length is not known."""
    shape = value.shape
    maker = value.producer()
    if shape is None and maker is not None and maker.op_type == "Cast":  # of a 16-bit constant
        return None if maker.inputs[0] is None else known_shape(maker.inputs[0])
    if shape is None and (tensor := known_tensor(value)) is not None:
        return list(tensor.shape.numpy())
    lengths = [length for length in shape or () if isinstance(length, int)]
    return None if shape is None or len(lengths) < len(shape) else lengths


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


def rank_of(value: ir.Value) -> int | None:
    """Return the number of axes; None if it is not known."""
    shape = known_shape(value) if value.shape is None else value.shape
    return None if shape is None else len(shape)


def _rank_of_sum(operands: Sequence[Sliced]) -> int | None:
    """Return the rank of the sums; None if it is not known, or not that of an operand."""
    ranks = [rank_of(value) for value, _ in operands]
    if len(ranks) == 1:
        return ranks[0]
    known = [rank for rank in ranks if rank is not None and rank > 1]
    return max(known) if len(known) == len(ranks) else None


def _axis(nodes: NodeCollector, axis: int | ir.Value) -> ir.Value:
    return nodes.ints(axis) if isinstance(axis, int) else axis
