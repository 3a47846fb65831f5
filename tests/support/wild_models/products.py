"""Products, convolutions, pools, recurrent layers and quantisation."""

from __future__ import annotations

import math

import numpy as np

from wild_models.pool import FLOAT, INT64, MOST_ELEMENTS, Pool, Row, Value, axes_of


def matmul(pool: Pool) -> None:
    """Multiply by a constant, or by a transposed value."""
    x = pool.take(least=2)
    inner = x.shape[-1]
    if pool.rng.random() < 0.3:
        other = Value(_turned(pool, x), FLOAT, (*x.shape[:-2], inner, x.shape[-2]), x.bound)
    else:
        other = pool.number(inner, pool.rng.randint(1, 4), most=4)
    shape = (*x.shape[:-1], other.shape[-1])
    if math.prod(shape) <= MOST_ELEMENTS:
        bound = x.bound * other.bound * inner
        pool.keep(pool.add("MatMul", [x, other])[0], FLOAT, shape, bound)


def _turned(pool: Pool, x: Value) -> str:
    order = [*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2]
    return pool.add("Transpose", [x], perm=order)[0]


def gemm(pool: Pool) -> None:
    x = pool.take(rank=2)
    turned, other = pool.rng.randint(0, 1), pool.rng.randint(0, 1)
    rows, inner = x.shape[::-1] if turned else x.shape
    n = pool.rng.randint(1, 4)
    w = pool.number(*((n, inner) if other else (inner, n)), most=4)
    given = [x, w] if pool.rng.random() < 0.4 else [x, w, pool.number(n)]
    attributes = {"transA": turned, "transB": other, "beta": pool.rng.choice((1.0, 2.0))}
    bound = x.bound * w.bound * inner + 2
    pool.keep(pool.add("Gemm", given, **attributes)[0], FLOAT, (rows, n), bound)


def einsum(pool: Pool) -> None:
    x = pool.take(rank=2)
    n = pool.rng.randint(1, 3)
    w = pool.number(x.shape[1], n, most=4)
    bound = x.bound * w.bound * x.shape[1]
    made = pool.add("Einsum", [x, w], equation="ij,jk->ki")[0]
    pool.keep(made, FLOAT, (n, x.shape[0]), bound)


def image(pool: Pool) -> Value:
    """Return a value of shape (N, C, H, W) or (N, C, L)."""
    x = pool.find(lambda v: v.dtype == FLOAT and len(v.shape) in (3, 4) and v.size <= 128)
    return pool.number(1, 2, 4, 4) if x is None or pool.rng.random() < 0.1 else x


def conv(pool: Pool) -> None:
    x = image(pool)
    channels, space = x.shape[1], x.shape[2:]
    group = channels if pool.rng.random() < 0.4 else 1
    made = group * pool.rng.randint(1, 2)
    kernel = [pool.rng.choice((1, min(3, d + 2))) for d in space]
    pads = [1 if k > 1 else 0 for k in kernel] * 2
    w = pool.number(made, channels // group, *kernel, most=2)
    shape = [d + 2 * p - k + 1 for d, p, k in zip(space, pads, kernel, strict=False)]
    if min(shape) < 1:
        return
    given = [x, w, pool.number(made)] if pool.rng.random() < 0.5 else [x, w]
    bound = x.bound * w.bound * math.prod(kernel) * channels // group + 1
    y = pool.add("Conv", given, group=group, pads=pads)[0]
    y = pool.keep(y, FLOAT, (x.shape[0], made, *shape), bound)
    if pool.rng.random() < 0.4:
        _behind(pool, y)


def _behind(pool: Pool, y: Value) -> None:
    """Add what often follows a convolution: a number for each channel."""
    each = pool.number(y.shape[1], *(1,) * (len(y.shape) - 2))
    op = pool.rng.choice(("Add", "Mul"))
    bound = y.bound + each.bound if op == "Add" else y.bound * each.bound
    pool.keep(pool.add(op, [y, each])[0], FLOAT, y.shape, bound)


def conv_transpose(pool: Pool) -> None:
    x = image(pool)
    channels, space = x.shape[1], x.shape[2:]
    group = channels if pool.rng.random() < 0.5 else 1
    each = pool.rng.randint(1, 2)
    w = pool.number(channels, each, *(2,) * len(space), most=2)
    shape = (x.shape[0], each * group, *(2 * d for d in space))
    if math.prod(shape) > MOST_ELEMENTS:
        return
    made = pool.add("ConvTranspose", [x, w], group=group, strides=[2] * len(space))[0]
    pool.keep(made, FLOAT, shape, x.bound * w.bound * channels)


def pooled(pool: Pool) -> None:
    x = image(pool)
    space = x.shape[2:]
    op = pool.rng.choice(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    if op.startswith("Global"):
        shape = (*x.shape[:2], *(1 for _ in space))
        pool.keep(pool.add(op, [x])[0], FLOAT, shape, x.bound)
        return
    kernel = [min(2, d) for d in space]
    shape = [d - k + 1 for d, k in zip(space, kernel, strict=True)]
    made = pool.add(op, [x], kernel_shape=kernel)[0]
    pool.keep(made, FLOAT, (*x.shape[:2], *shape), x.bound)


def recurrent(pool: Pool) -> None:
    """An LSTM, GRU or RNN, with a bias or without, with one output or all."""
    x = pool.find(lambda v: v.dtype == FLOAT and len(v.shape) == 3) or pool.number(2, 1, 3)
    steps, batch, size = x.shape
    op, gates = pool.rng.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    hidden = pool.rng.randint(1, 3)
    w = pool.number(1, gates * hidden, size, most=2)
    r = pool.number(1, gates * hidden, hidden, most=2)
    given = [x, w, r]
    if pool.rng.random() < 0.5:
        given.append(pool.number(1, 2 * gates * hidden, most=2))
    made = pool.add(op, given, pool.rng.randint(1, 2), hidden_size=hidden)
    pool.keep(made[0], FLOAT, (steps, 1, batch, hidden), 1.0)
    if len(made) > 1:
        pool.keep(made[1], FLOAT, (1, batch, hidden), 1.0)


def quantized(pool: Pool) -> None:
    x = pool.take(least=1)
    scale = pool.constant(np.array(0.125, np.float32))
    given = [x, scale, pool.constant(np.array(0, np.int8))]
    q = pool.add("QuantizeLinear", given)[0]
    made = pool.add("DequantizeLinear", [q, *given[1:]])[0]
    pool.keep(made, FLOAT, x.shape, max(x.bound, 16.0))


def normalized(pool: Pool) -> None:
    x = image(pool)
    c = x.shape[1]
    ones = [pool.number(c) for _ in range(3)]
    variance = pool.constant(np.full(c, 0.5, np.float32))
    op = pool.rng.choice(("BatchNormalization", "InstanceNormalization"))
    if op == "BatchNormalization":
        made = pool.add(op, [x, *ones, variance])[0]
    else:
        made = pool.add(op, [x, *ones[:2]])[0]
    pool.keep(made, FLOAT, x.shape, 2 * x.bound + 4)


def layer_normalized(pool: Pool) -> None:
    """LayerNormalization of the operator, or of its parts."""
    x = pool.take(least=1)
    scale = pool.number(x.shape[-1])
    if pool.opset >= 17 and pool.rng.random() < 0.5:
        given = [x, scale, pool.number(x.shape[-1])] if pool.rng.random() < 0.5 else [x, scale]
        made = pool.add("LayerNormalization", given, pool.rng.randint(1, 2), epsilon=0.125)[0]
        pool.keep(made, FLOAT, x.shape, 4.0)
        return
    axes, attributes = axes_of(pool, "ReduceMean", [-1])
    mean = pool.add("ReduceMean", [x, *axes], **attributes)[0]
    centered = pool.add("Sub", [x, mean])[0]
    square = pool.add("Mul", [centered, centered])[0]
    variance = pool.add("ReduceMean", [square, *axes], **attributes)[0]
    safe = pool.add("Add", [variance, pool.scalar(0.125, np.float32)])[0]
    made = pool.add("Div", [centered, pool.add("Sqrt", [safe])[0]])[0]
    pool.keep(pool.add("Mul", [made, scale])[0], FLOAT, x.shape, 4.0)


def attention(pool: Pool) -> None:
    """Scores, a mask, Softmax and what it weighs."""
    x = pool.take(least=2)
    scores = pool.add("MatMul", [x, _turned(pool, x)])[0]
    scaled = pool.add("Mul", [scores, pool.scalar(0.25, np.float32)])[0]
    if pool.rng.random() < 0.5:
        mask = np.triu(np.full((x.shape[-2],) * 2, -8, np.float32), 1)
        scaled = pool.add("Add", [scaled, pool.constant(mask)])[0]
    weights = pool.add("Softmax", [scaled], axis=-1)[0]
    pool.keep(pool.add("MatMul", [weights, x])[0], FLOAT, x.shape, x.bound)


def best(pool: Pool) -> None:
    x = pool.take(least=1)
    count = pool.rng.randint(1, x.shape[-1])
    values, places = pool.add("TopK", [x, pool.ints(count)], 2)
    shape = (*x.shape[:-1], count)
    pool.keep(values, FLOAT, shape, x.bound)
    pool.keep(places, INT64, shape, 4)


_TABLE: dict[Row, int] = {
    **dict.fromkeys((matmul, gemm, einsum, conv, conv_transpose, pooled, recurrent, quantized), 13),
    **dict.fromkeys((normalized, layer_normalized, attention, best), 13),
}
ROWS: dict[str, tuple[int, Row]] = {row.__name__: (since, row) for row, since in _TABLE.items()}
