"""Attention of com.microsoft as OpenVINO computes it: product by product, each of them rounded.

q, k, v = r(x W + b), a third each, head by head
r(softmax(r(q k^T) * s + mask)) v                with a mask: it is added in float32
r(softmax(r(q r(k * s)^T))) v                    without one, s = r(1 / sqrt(length of a head))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.graph import elements
from amp_rewrite.graph.infer import Types
from amp_rewrite.graph.traits import operator
from amp_rewrite.numerics.emulate.folded_weights import constant_of, cut_half
from amp_rewrite.numerics.emulate.insert import Inserter
from amp_rewrite.numerics.emulate.node_collector import NodeCollector

ATTENTION = "com.microsoft::Attention"
# operator: the second output of which is a mask: how many words of each row count
_EMBEDDING = "com.microsoft::EmbedLayerNormalization"
_MASKED = -10_000.0
"""What OpenVINO adds to scores that do not count, whatever `mask_filter_value` says."""
_INPUTS = 4
_PLAIN = {"num_heads", "unidirectional", "mask_filter_value"}


def spell_attention(model: ir.Model, types: Types, low: Mapping[ir.Value | None, DType]) -> None:
    """Put products and a Softmax in place of each Attention of a low type, in place.

    One with a past, a bias of the scores, thirds of several sizes or a mask of unknown rank is left
    as it is: rounded at its end. The types of new values are added.
    """
    insert = Inserter(model)
    for node in list(model.graph.all_nodes()):
        if operator(node) == ATTENTION and node.outputs[0] in low:
            _Attention(node, low[node.outputs[0]], insert, types).spell()


@dataclass
class _Attention:
    """One node."""

    node: ir.Node
    dtype: DType
    insert: Inserter
    types: Types

    def __post_init__(self) -> None:
        self.nodes = NodeCollector(self.node.outputs[0].name or "", self.insert.names)
        self.low = elements.with_element(self.types[self.node.outputs[0]], self.dtype)
        self.wide = elements.with_element(self.low, FLOAT32)

    def spell(self) -> None:
        """Replace the node if it is of a kind that is known."""
        data, weights, bias, mask = (*self.node.inputs, None)[:_INPUTS]
        numbers = constant_of(weights)
        rank = self._mask_rank(mask)
        if numbers is None or bias is None or rank is None or not self._is_plain():
            return
        heads = self.node.attributes.get_int("num_heads", 1)
        width = numbers.shape[1] // 3
        size = width // heads
        joined = self._add("Add", self._add("MatMul", data, weights), bias)
        q, k, v = (self._third(joined, i * width, heads, size) for i in range(3))
        keys = self._add("Transpose", k, attributes=[ir.AttrInt64s("perm", [0, 1, 3, 2])])
        factor = self.nodes.number(float(cut_half(1 / np.sqrt(np.full(1, size, np.float32)))[0]))
        scores = self._add("MatMul", q, keys)
        terms = self._terms(data, mask, rank)
        if not terms:
            shares = self._softmax(self._add("Mul", scores, factor), self.low)
        else:
            scores = self._cast(scores, FLOAT32, self.wide)
            scores = self._add("Mul", scores, factor, type_=self.wide)
            for term in terms:
                scores = self._add("Add", scores, term, type_=self.wide)
            shares = self._cast(self._softmax(scores, self.wide), self.dtype, self.low)
        product = self._moved(self._add("MatMul", shares, v))
        result = self._add("Reshape", product, self.nodes.ints(0, 0, width))
        self.insert.replace_node(self.node, self.nodes.made, result)

    def _is_plain(self) -> bool:
        attributes = self.node.attributes
        return (
            attributes.keys() <= _PLAIN
            and not any(self.node.inputs[_INPUTS:])
            and len([value for value in self.node.outputs if value.name]) == 1
        )

    def _mask_rank(self, mask: ir.Value | None) -> int | None:
        """Return the rank of a mask that says what counts, row by row; 0 of none."""
        if mask is None:
            return 0
        maker = mask.producer()
        if maker is not None and operator(maker) == _EMBEDDING:
            return 1
        return 2 if mask.shape is not None and len(mask.shape) == 2 else None

    def _add(
        self,
        op: str,
        *inputs: ir.Value | None,
        attributes: list[ir.Attr] | None = None,
        type_: str | None = None,
    ) -> ir.Value:
        value = self.nodes.add(op, inputs, attributes or [])
        self.types[value] = type_ or self.low
        return value

    def _cast(self, value: ir.Value, dtype: DType, type_: str) -> ir.Value:
        to = ir.AttrInt64("to", dtype.ir.value)
        return self._add("Cast", value, attributes=[to], type_=type_)

    def _softmax(self, value: ir.Value, type_: str) -> ir.Value:
        return self._add("Softmax", value, attributes=[ir.AttrInt64("axis", -1)], type_=type_)

    def _moved(self, value: ir.Value) -> ir.Value:
        """Exchange the axes of words and heads."""
        return self._add("Transpose", value, attributes=[ir.AttrInt64s("perm", [0, 2, 1, 3])])

    def _third(self, joined: ir.Value, start: int, heads: int, size: int) -> ir.Value:
        """Return queries, keys or values (N, heads, words, size)."""
        ends = self.nodes.ints(start), self.nodes.ints(start + heads * size)
        part = self._add("Slice", joined, *ends, self.nodes.ints(2))
        return self._moved(self._add("Reshape", part, self.nodes.ints(0, 0, heads, size)))

    def _terms(self, data: ir.Value | None, mask: ir.Value | None, rank: int) -> list[ir.Value]:
        """Return what is added to the scores: 0 or less."""
        one_way = bool(self.node.attributes.get_int("unidirectional", 0))
        if mask is None and not one_way:
            return []
        whole, integer = ir.DataType.INT64, "tensor(int64)"
        shape = self.nodes.add("Shape", [data], type_=whole)
        length = self.nodes.add("Gather", [shape, self.nodes.ints(1)], type_=whole)
        ends = [self.nodes.add("Squeeze", [v], type_=whole) for v in (self.nodes.ints(0), length)]
        step = self.nodes.add("Squeeze", [self.nodes.ints(1)], type_=whole)
        places = self._add("Range", *ends, step, type_=integer)
        unread: list[ir.Value] = []
        if one_way:
            rows = self.nodes.add("Unsqueeze", [places, self.nodes.ints(1)], type_=whole)
            unread.append(self.nodes.add("Greater", [places, rows], type_=ir.DataType.BOOL))
        if mask is not None:
            counts = self.nodes.add("Cast", [mask], [ir.AttrInt64("to", whole.value)], whole)
            if rank == 1:
                counts = self.nodes.add("Unsqueeze", [counts, self.nodes.ints(1)], type_=whole)
                late = self.nodes.add("Less", [places, counts], type_=ir.DataType.BOOL)
            else:
                late = self.nodes.add("Greater", [counts, ends[0]], type_=ir.DataType.BOOL)
            late = self.nodes.add("Not", [late], type_=ir.DataType.BOOL)
            unread.append(self.nodes.add("Unsqueeze", [late, self.nodes.ints(1, 2)]))
        return [self._penalty(value) for value in unread]

    def _penalty(self, unread: ir.Value) -> ir.Value:
        wide = self._cast(unread, FLOAT32, self.wide)
        return self._add("Mul", wide, self.nodes.number(_MASKED), type_=self.wide)
