"""Add up in a low type, in a Loop: in chunks, or term by term as a kernel was measured to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32, FLOAT64, DType
from amp_rewrite.kernels.accumulation import SumOrder
from amp_rewrite.numerics.emulate.node_collector import NodeCollector

CHUNK = 16
"""Terms that are summed before the running sum is rounded: the depth of one mma.sync m16n8k16."""

_FINITE = 2.0**200
"""A bound of the sums whose power of two is asked for; the low types are infinite before it."""

Sliced = tuple[ir.Value, ir.Value]
"""A value, and the axis along which it is cut, as a 1-D int64 value."""
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
        """Sum the first chunk, then the others in a Loop.

        Args:
            nodes: Takes the nodes.
            operands: What is cut into chunks, and along which axis.
            length: The number of terms, if it is known.
            partial: Adds the nodes that sum a part of each operand in float32.
            begin: What the running sum begins with; None for nothing.
        """
        chunk = self._chunk(length)
        if self.rounds_once:
            operands = [(nodes.cast(value, FLOAT64.ir), axis) for value, axis in operands]
            begin = None if begin is None else nodes.cast(begin, FLOAT64.ir)
        value, axis = operands[0]
        size = nodes.add("Gather", [nodes.add("Shape", [value]), axis])
        rest = nodes.add("Div", [nodes.add("Sub", [size, nodes.ints(1)]), nodes.ints(chunk)])
        trips = nodes.add("Squeeze", [rest])
        sum_ = self._chunk_sum(nodes, operands, nodes.ints(0), chunk, partial)
        first = self._round(nodes, sum_ if begin is None else nodes.add("Add", [begin, sum_]))
        body = ir.AttrGraph("body", self._body(nodes, operands, chunk, partial))
        total = nodes.add("Loop", [trips, None, first], [body], self._type)
        return nodes.cast(total, FLOAT32.ir) if self.rounds_once else total

    @property
    def rounds_once(self) -> bool:
        """Whether a product and the sum that it joins are rounded once: they are added as doubles.

        float32 holds a product, but not its sum with the running sum.
        """
        return self.order is not None and self.order.fused

    @property
    def _type(self) -> ir.DataType:
        return FLOAT64.ir if self.rounds_once else FLOAT32.ir

    def _round(self, nodes: NodeCollector, value: ir.Value) -> ir.Value:
        """Round a running sum."""
        return (
            round_doubles(nodes, value, self.dtype)
            if self.rounds_once
            else self.round(nodes, value)
        )

    def round(self, nodes: NodeCollector, value: ir.Value) -> ir.Value:
        """Round to the low type."""
        return nodes.round(value, self.dtype)

    def _chunk(self, length: int | None) -> int:
        if self.order is None:
            return CHUNK
        return self.order.chunk if length is None or length % self.order.chunk == 0 else 1

    def _body(
        self, outer: NodeCollector, operands: Sequence[Sliced], chunk: int, partial: Partial
    ) -> ir.Graph:
        """Return the Loop's body: add chunk i + 1 to the running sum and round."""
        nodes = outer.nested("chunk")
        index = nodes.value("i", ir.DataType.INT64, ir.Shape([]))
        again = nodes.value("again", ir.DataType.BOOL, ir.Shape([]))
        total = nodes.value("total", self._type)
        number = nodes.add("Add", [index, nodes.ints(1)])
        start = nodes.add("Mul", [number, nodes.ints(chunk)])
        added = nodes.add("Add", [total, self._chunk_sum(nodes, operands, start, chunk, partial)])
        on = nodes.add("Identity", [again], type_=ir.DataType.BOOL)
        outputs = [on, self._round(nodes, added)]
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
        total = self._term(nodes, operands, start, partial)
        for i in range(1, chunk):
            place = nodes.add("Add", [start, nodes.ints(i)])
            term = self._term(nodes, operands, place, partial)
            total = self._round(nodes, nodes.add("Add", [total, term]))
        return total

    def _term(
        self, nodes: NodeCollector, operands: Sequence[Sliced], place: ir.Value, partial: Partial
    ) -> ir.Value:
        """Return one term, rounded unless it joins the sum in the same instruction."""
        term = _part(nodes, operands, place, 1, partial)
        return term if self.rounds_once else self.round(nodes, term)


def round_doubles(nodes: NodeCollector, value: ir.Value, dtype: DType) -> ir.Value:
    """Round doubles to a low type, to nearest and ties to even; the result is in doubles.

    A Cast rounds to float32 on the way, which moves a number in 8,192. So what the low type cannot
    hold is rounded away first, by adding and subtracting 2^52 units in its last place. The unit is
    that of the number's power of two, |q - (1 - u) q| with q = (1 / 2u + 1) x and u = 2^-53 (S. M.
    Rump, T. Ogita, S. Oishi, Accurate Floating-Point Summation Part I, 2008, algorithm 3.5). Below
    the normal numbers it is that of the smallest normal one. (1 - u) q is q - u q, which rounds to
    the same number: ONNX Runtime removes a Mul by 1 - u, which is 1 in float32.
    """
    ends = (nodes.double(dtype.smallest_normal), nodes.double(_FINITE))
    size = nodes.add("Clip", [nodes.add("Abs", [value]), *ends])
    finite = nodes.add("Mul", [size, nodes.add("Sign", [value])])
    units = dtype.epsilon / FLOAT64.epsilon
    q = nodes.add("Mul", [finite, nodes.double((2.0**52 + 1) * units)])
    below = nodes.add("Sub", [q, nodes.add("Mul", [q, nodes.double(2.0**-53)])])
    shift = nodes.add("Sub", [q, below])
    rounded = nodes.add("Sub", [nodes.add("Add", [value, shift]), shift])
    return nodes.cast(nodes.cast(rounded, dtype.ir), FLOAT64.ir)


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
    return partial(nodes, [nodes.add("Slice", [v, start, end, axis]) for v, axis in operands])
