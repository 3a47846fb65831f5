"""Formulas of operators that read stored integers q: the number is (q - zero point) scale."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.rules.arithmetic import operands, rank_of
from amp_rewrite.grad.rules.formula import Formulas, count, option, refuse


def dequantize(node: ir.Node, b: Builder) -> list[ir.Value]:
    """y = (q - zero point) scale: a scale for all, for each slice, or for each block of them."""
    q, scale = operands(node)[:2]
    rank, axis = b.rank(scale), node.attributes.get_int("axis", 1)
    block = node.attributes.get_int("block_size", 0)

    def spread(value: ir.Value) -> ir.Value:
        value = b.cast_like(value, scale)
        if block:
            return b.gather(value, b.div(count(b, b.dim(q, axis)), block), axis)
        if rank == 1 and b.dims(value) != (1,):
            of_q = rank_of(node, b, q)
            return b.unsqueeze(value, [k for k in range(of_q) if k != axis % of_q])
        return b.reshape(value, [])

    if rank is None:
        raise refuse(node, "a scale of unknown rank")
    zero_point = option(node, 2)
    y = b.cast_like(q, scale)
    y = b.mul(y if zero_point is None else b.sub(y, spread(zero_point)), spread(scale))
    dtype = node.attributes.get_int("output_dtype", 0)
    return [b.cast(y, ir.DataType(dtype)) if dtype else y]


def matmul_nbits(node: ir.Node, b: Builder) -> list[ir.Value]:
    """y = x W^T + bias: W of integers of some bits, several a byte, the lowest bits first.

    The bytes are (rows, blocks, bytes of a block); a block has a scale and may have a zero point.
    """
    x, packed, scale = operands(node)[:3]
    attributes = node.attributes
    bits, block = attributes.get_int("bits", 4), attributes["block_size"].as_int()
    length, rows = attributes["K"].as_int(), attributes["N"].as_int()
    blocks = -(-length // block)
    zero_point, order, bias = (option(node, k) for k in (3, 4, 5))
    if order is not None:
        raise refuse(node, "a MatMulNBits with g_idx")
    q = b.reshape(_unpacked(b, packed, bits), [rows, blocks, block])
    if zero_point is None:
        middle = b.constant(float(1 << (bits - 1)), b.type_of(scale))
    elif zero_point.dtype is ir.DataType.UINT8:
        points = b.reshape(_unpacked(b, zero_point, bits), [rows, -1])
        middle = b.unsqueeze(b.cast_like(b.slice(points, [0], [blocks], [1]), scale), [2])
    else:
        middle = b.reshape(b.cast_like(zero_point, scale), [rows, blocks, 1])
    scales = b.reshape(scale, [rows, blocks, 1])
    w = b.reshape(b.mul(b.sub(b.cast_like(q, scale), middle), scales), [rows, -1])
    w = b.transpose(b.cast_like(b.slice(w, [0], [length], [1]), x), [1, 0])
    y = b.matmul(x, w)
    return [y if bias is None else b.add(y, bias)]


def _unpacked(b: Builder, packed: ir.Value, bits: int) -> ir.Value:
    """Return the integers of bytes, those of a byte along a new last axis."""
    wide = b.unsqueeze(b.cast(packed, ir.DataType.INT32), [b.rank(packed) or 0])
    units = b.cast(b.constant([1 << k for k in range(0, 8, bits)]), ir.DataType.INT32)
    limit = b.constant(1 << bits, ir.DataType.INT32)
    return b.op("Mod", b.div(wide, units), limit)


FORMULAS: Formulas = {
    "DequantizeLinear": dequantize,
    "com.microsoft::DequantizeLinear": dequantize,
    "com.microsoft::MatMulNBits": matmul_nbits,
}
