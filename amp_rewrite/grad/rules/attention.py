"""Formulas of ONNX Runtime's attention: y = softmax(scale Q K^T + mask) V for each head.

Q, K and V are (batch, heads, length, size) here; the standard's own Attention is a function.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.rules.arithmetic import operands, rank_of
from amp_rewrite.grad.rules.contributed import normalized
from amp_rewrite.grad.rules.formula import (
    Formulas,
    Outputs,
    count,
    option,
    parted,
    refuse,
    shape_of,
)

_NOWHERE = 1 << 40
"""The place of a key that is none."""
_FILTER = -10000.0
"""What masked scores are lowered by, unless an attribute says another number."""


def _refuse_others(node: ir.Node, inputs: Sequence[int], *attributes: str) -> None:
    """Refuse a node with inputs or attributes that its formula does not spell."""
    found = [f"input {k}" for k in inputs if option(node, k) is not None]
    found += [key for key in attributes if node.attributes.get_int(key, 0) > 0]
    if found:
        raise refuse(node, f"this form of {node.op_type}", ", ".join(found))


def _there(node: ir.Node, index: int) -> list[ir.Value]:
    """Return an input of a node in a list; an empty one where it has none there."""
    value = option(node, index)
    return [] if value is None else [value]


def _heads(b: Builder, x: ir.Value, heads: int) -> ir.Value:
    """Return (batch, length, heads x size) as (batch, heads, length, size); 4-D ones stay."""
    if b.rank(x) == 4:
        return x
    size = parted(b, b.dim(x, 2), heads)
    apart = b.reshape_exactly(x, shape_of(b, b.dim(x, 0), b.dim(x, 1), heads, size))
    return b.transpose(apart, [0, 2, 1, 3])


def _attended(
    b: Builder,
    node: ir.Node,
    sides: Sequence[ir.Value],
    bias: Sequence[ir.Value | None],
    hidden: ir.Value | None,
) -> ir.Value:
    """Return y, (batch, length, heads x size).

    Args:
        b: The builder.
        node: Its attributes are scale and softcap.
        sides: Q, K and V.
        bias: What is added to the scores.
        hidden: Where nothing is attended to: booleans that broadcast to the scores.
    """
    q, k, v = sides
    size = b.cast_like(b.dim(q, 3), q)
    scale = node.attributes.get_float("scale", 0.0)
    scores = b.matmul(q, b.transpose(k, [0, 1, 3, 2]))
    scores = b.mul(scores, scale) if scale else b.div(scores, b.sqrt(size))
    cap = node.attributes.get_float("softcap", 0.0)
    if cap:
        scores = b.mul(b.tanh(b.mul(scores, 1 / cap)), cap)
    for part in bias:
        scores = scores if part is None else b.add(scores, part)
    if hidden is not None:
        scores = b.where(hidden, float(np.finfo(np.float32).min), scores)
    y = b.transpose(b.matmul(b.op("Softmax", scores, axis=-1), v), [0, 2, 1, 3])
    return b.reshape(y, shape_of(b, 0, 0, b.mul(b.dim(y, 2), b.dim(y, 3))))


def _later(b: Builder, node: ir.Node, q: ir.Value, k: ir.Value) -> ir.Value | None:
    """Return which keys a query does not see: those behind it, if it is to see no later ones."""
    if not node.attributes.get_int("unidirectional", 0):
        return None
    length, total = b.dim(q, 2), b.dim(k, 2)
    own = b.unsqueeze(b.add(count(b, length), b.sub(total, length)), [1])
    return b.greater(count(b, total), own)


def _masked(b: Builder, node: ir.Node, mask: ir.Value | None, k: ir.Value) -> ir.Value | None:
    """Return what a mask of integers adds to scores: 0 at keys that count, else a large negative.

    It is (batch, keys) or (batch, queries, keys), with 1 for what counts; or it begins with how
    many do in each row of the batch.
    """
    if mask is None:
        return None
    rank, batch = b.rank(mask), b.dim(operands(node)[0], 0)
    counts = b.greater(mask, 0)
    if rank == 1 and b.dims(mask) != (2 * (b.ints(batch) or [0])[0],):
        lengths = b.cast(b.slice(mask, [0], batch), ir.DataType.INT64)
        counts = b.less(count(b, b.dim(k, 2)), b.unsqueeze(lengths, [1]))
    elif rank not in (2, 3):
        raise refuse(node, "a mask", f"shape {b.symbolic_dims(mask)}")
    counts = b.unsqueeze(counts, [1] if rank == 3 else [1, 2])
    number = node.attributes.get_float("mask_filter_value", _FILTER)
    return b.where(counts, b.operand(0, k), number)


def attention(node: ir.Node, b: Builder) -> Outputs:
    """Q, K, V = x W + bias, split; the keys and values of the past come before them."""
    _refuse_others(node, [6], "do_rotary", "past_present_share_buffer")
    x, w = operands(node)[:2]
    bias, mask, past, added = (option(node, k) for k in (2, 3, 4, 5))
    heads = node.attributes["num_heads"].as_int()
    projected = b.matmul(x, w)
    projected = projected if bias is None else b.add(projected, bias)
    widths = node.attributes.get_ints("qkv_hidden_sizes", ())
    third = parted(b, b.dim(w, 1), 3)
    lengths = b.vector(widths) if widths else shape_of(b, third, third, third)
    q, k, v = (_heads(b, part, heads) for part in b.split(projected, lengths, 2, 3))
    if past is not None:
        k, v = (b.concat([b.gather(past, b.constant(n), 0), p], 2) for n, p in enumerate((k, v)))
    y = _attended(b, node, (q, k, v), [_masked(b, node, mask, k), added], _later(b, node, q, k))
    if len(node.outputs) == 1:
        return [y]
    return [y, b.concat([b.unsqueeze(p, [0]) for p in (k, v)], 0)]


def multi_head_attention(node: ir.Node, b: Builder) -> Outputs:
    """Q, K, V + bias; the keys and values of the past come before them."""
    _refuse_others(node, [8, 9])
    q, k, v, bias, mask, added = (option(node, n) for n in range(6))
    past = [_there(node, n) for n in (6, 7)]
    if q is None or k is None or v is None or b.rank(q) != 3 or b.rank(k) not in (3, 4):
        raise refuse(node, "a packed MultiHeadAttention")
    if bias is not None:
        widths = b.concat(
            [b.dim(q, 2), b.dim(q, 2), b.sub(b.dim(bias, 0), b.mul(b.dim(q, 2), 2))], 0
        )
        pieces = b.split(bias, widths, 0, 3)
        q, k, v = (
            x if b.rank(x) == 4 else b.add(x, p) for x, p in zip((q, k, v), pieces, strict=True)
        )
    heads = node.attributes["num_heads"].as_int()
    q, k, v = (_heads(b, x, heads) for x in (q, k, v))
    k, v = (b.concat([*p, x], 2) for p, x in zip(past, (k, v), strict=True))
    y = _attended(b, node, (q, k, v), [_masked(b, node, mask, k), added], _later(b, node, q, k))
    return [y, k, v]


def group_query_attention(node: ir.Node, b: Builder) -> Outputs:
    """As of many heads, but several heads of Q share one of K and V; causal, rotated on demand.

    Each row of a batch has a past of its own length, which need not fill its place; then K and V
    for the next run are not those that come out here.
    """
    _refuse_others(node, [11, 12, 13, 16], "smooth_softmax", "sliding_window_cache", "qk_output")
    attributes = node.attributes
    heads, groups = attributes["num_heads"].as_int(), attributes["kv_num_heads"].as_int()
    q, k, v, seqlens = (option(node, n) for n in (0, 1, 2, 5))
    past = [_there(node, n) for n in (3, 4)]
    if q is None or seqlens is None:
        raise refuse(node, "a GroupQueryAttention without a query or lengths")
    if k is None or v is None:
        size = parted(b, b.dim(q, 2), heads + 2 * groups)
        widths = b.concat([b.mul(size, n) for n in (heads, groups, groups)], 0)
        q, k, v = b.split(q, widths, 2, 3)
    q, k, v = (_heads(b, x, n) for x, n in ((q, heads), (k, groups), (v, groups)))
    if option(node, 14) is not None:
        epsilon = attributes.get_float("qk_norm_epsilon", 1e-6)
        q, k = (
            normalized(b, x, option(node, n), None, epsilon, centre=False)
            for x, n in ((q, 14), (k, 15))
        )
    length = b.dim(q, 2)
    total = b.add(b.cast(seqlens, ir.DataType.INT64), 1)
    before = b.unsqueeze(b.maximum(b.sub(b.reshape(total, [-1]), length), 0), [1])
    own = b.add(before, count(b, length))  # places: (batch, length)
    if attributes.get_int("do_rotary", 0):
        at, caches = option(node, 9) or own, [option(node, n) for n in (7, 8)]
        turned = bool(attributes.get_int("rotary_interleaved", 0))
        q, k = (_rotated(b, node, x, at, caches, interleaved=turned) for x in (q, k))
    k, v = (b.concat([*p, x], 2) for p, x in zip(past, (k, v), strict=True))
    shared = b.constant(np.arange(heads) // (heads // groups))
    sides = (q, *(b.gather(x, shared, 1) for x in (k, v)))
    keys = own
    if past[0]:
        there = count(b, b.dim(past[0][0], 2))
        keys = b.concat([b.where(b.less(there, before), there, _NOWHERE), own], 1)
    keys, own = b.unsqueeze(keys, [1, 2]), b.unsqueeze(own, [1, 3])
    causal, window = attributes.get_int("causal", 1), attributes.get_int("local_window_size", -1)
    hidden = b.greater(keys, own) if causal else b.equal(keys, _NOWHERE)
    if window > 0:
        hidden = b.op("Or", hidden, b.less_or_equal(keys, b.sub(own, window)))
    return [_attended(b, node, sides, [option(node, 10)], hidden), k, v]


def rotary_embedding(node: ir.Node, b: Builder) -> Outputs:
    """y = pairs (u, w) of x turned by an angle: (u cos - w sin, u sin + w cos), by its place."""
    _refuse_others(node, [], "is_packed_batching")
    x, at, *caches = operands(node)
    attributes, rank = node.attributes, rank_of(node, b, x)
    heads = attributes.get_int("num_heads", 0)
    if rank != 4 and not heads:
        width = 2 * ((b.dims(caches[0]) or (None, None))[1] or 0)
        heads = ((b.dims(x) or (None,))[-1] or 0) // max(width, 1)
        if not heads:
            raise refuse(node, "a RotaryEmbedding of an unknown number of heads")
    apart = _heads(b, x, heads)
    if b.dims(at) == (1,):
        at = b.unsqueeze(b.add(count(b, b.dim(apart, 2)), at), [0])
    turned = bool(attributes.get_int("interleaved", 0))
    y = _rotated(b, node, apart, at, caches, interleaved=turned)
    return [y if rank == 4 else b.reshape_like(b.transpose(y, [0, 2, 1, 3]), x)]


def _rotated(
    b: Builder,
    node: ir.Node,
    x: ir.Value,
    at: ir.Value,
    caches: Sequence[ir.Value | None],
    *,
    interleaved: bool,
) -> ir.Value:
    """Return x with pairs of its elements turned: neighbours if interleaved, else of two halves.

    The caches are the cosines and sines of the angles of each place; what they do not cover stays.
    """
    half = None if caches[0] is None else (b.dims(caches[0]) or (None, None))[1]
    if caches[0] is None or caches[1] is None or half is None:
        raise refuse(node, "a rotation by angles of unknown number")
    cos, sin = (b.unsqueeze(b.gather(cache, at), [1]) for cache in caches if cache is not None)
    if interleaved:
        ends = ([0], [1])
        u, w = (b.slice(x, start, [2 * half], [3], [2]) for start in ends)
    else:
        u, w = (b.slice(x, [k * half], [(k + 1) * half], [3]) for k in (0, 1))
    parts = [b.sub(b.mul(u, cos), b.mul(w, sin)), b.add(b.mul(u, sin), b.mul(w, cos))]
    if interleaved:
        joined = b.concat([b.unsqueeze(p, [4]) for p in parts], 4)
        parts = [b.reshape(joined, [0, 0, 0, 2 * half])]
    return b.concat([*parts, b.slice(x, [2 * half], [2**63 - 1], [3])], 3)


FORMULAS: Formulas = {
    "com.microsoft::Attention": attention,
    "com.microsoft::GroupQueryAttention": group_query_attention,
    "com.microsoft::MultiHeadAttention": multi_head_attention,
    "com.microsoft::RotaryEmbedding": rotary_embedding,
}
