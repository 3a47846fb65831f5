"""Operators that move elements, and those of shapes."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto, helper

from wild_models.pool import FLOAT, INT64, MOST_ELEMENTS, Pool, Row, Value


def reshape(pool: Pool) -> None:
    x = pool.take()
    shape = _factors(pool, x.size)
    given = list(shape)
    if given and pool.rng.random() < 0.4:
        given[pool.rng.randrange(len(given))] = -1
    if pool.rng.random() < 0.2:
        given, shape = [-1], (x.size,)
    pool.keep(pool.add("Reshape", [x, pool.ints(*given)])[0], FLOAT, shape, x.bound)


def _factors(pool: Pool, size: int) -> tuple[int, ...]:
    """Return a shape of so many elements."""
    shape = []
    for _ in range(pool.rng.randint(0, 3)):
        fits = [d for d in (1, 2, 3, 4, 6, 8) if size % d == 0]
        shape.append(pool.rng.choice(fits))
        size //= shape[-1]
    return (*shape, size)


def transpose(pool: Pool) -> None:
    x = pool.take(least=1)
    order = list(range(len(x.shape)))
    pool.rng.shuffle(order)
    pool.keep(
        pool.add("Transpose", [x], perm=order)[0], FLOAT, [x.shape[i] for i in order], x.bound
    )


def flatten(pool: Pool) -> None:
    x = pool.take(least=1)
    axis = pool.rng.randint(0, len(x.shape))
    shape = (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
    pool.keep(pool.add("Flatten", [x], axis=axis)[0], FLOAT, shape, x.bound)


def unsqueeze(pool: Pool) -> None:
    x = pool.find(lambda v: v.dtype == FLOAT and len(v.shape) < 4) or pool.number(2, 3)
    at = pool.rng.randint(0, len(x.shape))
    shape = (*x.shape[:at], 1, *x.shape[at:])
    pool.keep(pool.add("Unsqueeze", [x, pool.ints(at)])[0], FLOAT, shape, x.bound)


def squeeze(pool: Pool) -> None:
    x = pool.find(lambda v: v.dtype == FLOAT and 1 in v.shape) or pool.number(1, 3)
    if pool.rng.random() < 0.3:
        shape = [d for d in x.shape if d != 1]
        pool.keep(pool.add("Squeeze", [x])[0], FLOAT, shape, x.bound)
        return
    at = x.shape.index(1)
    shape = (*x.shape[:at], *x.shape[at + 1 :])
    pool.keep(pool.add("Squeeze", [x, pool.ints(at)])[0], FLOAT, shape, x.bound)


def concat(pool: Pool) -> None:
    x = pool.take(least=1)
    axis = pool.rng.randrange(len(x.shape))
    others = [x if pool.rng.random() < 0.5 else pool.number(*x.shape)]
    shape = [*x.shape]
    shape[axis] *= 2
    if 2 * x.size <= MOST_ELEMENTS:
        bound = max(x.bound, others[0].bound)
        pool.keep(pool.add("Concat", [x, *others], axis=axis)[0], FLOAT, shape, bound)


def split(pool: Pool) -> None:
    x = pool.find(lambda v: v.dtype == FLOAT and any(d > 1 for d in v.shape)) or pool.number(4)
    axis = next(i for i, d in enumerate(x.shape) if d > 1)
    first = pool.rng.randint(1, x.shape[axis] - 1)
    lengths = first, x.shape[axis] - first
    made = pool.add("Split", [x, pool.ints(*lengths)], 2, axis=axis)
    for name, length in zip(made, lengths, strict=True):
        pool.keep(name, FLOAT, (*x.shape[:axis], length, *x.shape[axis + 1 :]), x.bound)


def slices(pool: Pool) -> None:
    x = pool.take(least=1)
    axis = pool.rng.randrange(len(x.shape))
    if pool.rng.random() < 0.3:
        given = [x, pool.ints(-1), pool.ints(-99), pool.ints(axis), pool.ints(-1)]
        pool.one("Slice", given, x)
        return
    end = pool.rng.randint(1, x.shape[axis])
    shape = (*x.shape[:axis], end, *x.shape[axis + 1 :])
    made = pool.add("Slice", [x, pool.ints(0), pool.ints(end), pool.ints(axis)])[0]
    pool.keep(made, FLOAT, shape, x.bound)


def gather(pool: Pool) -> None:
    x = pool.take(least=1)
    axis = pool.rng.randrange(len(x.shape))
    places = [pool.rng.randrange(x.shape[axis]) for _ in range(pool.rng.randint(1, 3))]
    if pool.rng.random() < 0.3:
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
        made = pool.add("Gather", [x, pool.scalar(places[0])], axis=axis)[0]
    else:
        shape = (*x.shape[:axis], len(places), *x.shape[axis + 1 :])
        made = pool.add("Gather", [x, pool.ints(*places)], axis=axis)[0]
    if math.prod(shape) <= MOST_ELEMENTS:
        pool.keep(made, FLOAT, shape, x.bound)


def gather_elements(pool: Pool) -> None:
    x = pool.take(least=1)
    places = np.array([pool.rng.randrange(x.shape[0]) for _ in range(x.size)], np.int64)
    pool.one("GatherElements", [x, pool.constant(places.reshape(x.shape))], x, axis=0)


def gather_nd(pool: Pool) -> None:
    x = pool.take(least=2)
    made = pool.add("GatherND", [x, pool.constant(np.array([[0], [x.shape[0] - 1]]))])[0]
    pool.keep(made, FLOAT, (2, *x.shape[1:]), x.bound)


def scatter(pool: Pool) -> None:
    x = pool.take(least=1)
    if pool.rng.random() < 0.5:
        given = [x, pool.constant(np.array([[0]])), pool.number(1, *x.shape[1:])]
        pool.one("ScatterND", given, Value("", FLOAT, x.shape, max(1.0, x.bound)))
        return
    places = np.zeros((1, *x.shape[1:]), np.int64)
    given = [x, pool.constant(places), pool.number(*places.shape)]
    pool.one("ScatterElements", given, Value("", FLOAT, x.shape, max(1.0, x.bound)), axis=0)


def expand(pool: Pool) -> None:
    x = pool.take()
    shape = (2, *x.shape)
    if len(shape) <= 4 and 2 * x.size <= MOST_ELEMENTS:
        pool.keep(pool.add("Expand", [x, pool.ints(*shape)])[0], FLOAT, shape, x.bound)


def tile(pool: Pool) -> None:
    x = pool.take(least=1)
    times = [1] * (len(x.shape) - 1) + [2]
    if 2 * x.size <= MOST_ELEMENTS:
        shape = (*x.shape[:-1], 2 * x.shape[-1])
        pool.keep(pool.add("Tile", [x, pool.ints(*times)])[0], FLOAT, shape, x.bound)


def pad(pool: Pool) -> None:
    """Pad with zeros, with a number, or by what is at the edge."""
    x = pool.take(least=1)
    if x.size * 2 > MOST_ELEMENTS:
        return
    pads = [0] * (2 * len(x.shape))
    pads[-1] = 1
    shape = (*x.shape[:-1], x.shape[-1] + 1)
    given: list[Value | str] = [x, pool.ints(*pads)]
    mode = pool.rng.choice(("constant", "constant", "edge"))
    if mode == "constant" and pool.rng.random() < 0.5:
        given.append(pool.scalar(0.5, np.float32))
    pool.keep(pool.add("Pad", given, mode=mode)[0], FLOAT, shape, max(1.0, x.bound))


def trilu(pool: Pool) -> None:
    x = pool.take(least=2)
    given = [x, pool.scalar(1)] if pool.rng.random() < 0.5 else [x]
    pool.one("Trilu", given, x, upper=pool.rng.randint(0, 1))


def depth(pool: Pool) -> None:
    x = pool.number(1, 4, 2, 2) if pool.rng.random() < 0.3 else pool.take(rank=4)
    if x.shape[1] % 4 == 0:
        n, c, h, w = x.shape
        made = pool.add("DepthToSpace", [x], blocksize=2)[0]
        pool.keep(made, FLOAT, (n, c // 4, 2 * h, 2 * w), x.bound)


def resize(pool: Pool) -> None:
    """Enlarge by scales or to sizes; the region of interest is absent."""
    x = pool.take(rank=4)
    n, c, h, w = x.shape
    if 4 * x.size > MOST_ELEMENTS:
        return
    scales = pool.constant(np.array([1, 1, 2, 2], np.float32))
    sizes = pool.ints(n, c, 2 * h, 2 * w)
    given = [x, "", scales] if pool.rng.random() < 0.5 else [x, "", "", sizes]
    mode = pool.rng.choice(("nearest", "linear"))
    pool.keep(pool.add("Resize", given, mode=mode)[0], FLOAT, (n, c, 2 * h, 2 * w), x.bound)


def shape_of(pool: Pool) -> None:
    """Reshape by what Shape, Gather and Concat say of a value."""
    x = pool.take(least=2)
    shape = pool.keep(pool.add("Shape", [x])[0], INT64, (len(x.shape),), 4)
    head = pool.add("Gather", [shape, pool.ints(0)], axis=0)[0]
    target = pool.add("Concat", [head, pool.ints(-1)], axis=0)[0]
    made = pool.add("Reshape", [x, target])[0]
    pool.keep(made, FLOAT, (x.shape[0], math.prod(x.shape[1:])), x.bound)


def filled(pool: Pool) -> None:
    shape = pool.shape(1, 2)
    tensor = helper.make_tensor("", TensorProto.FLOAT, [1], [0.5])
    made = pool.add("ConstantOfShape", [pool.ints(*shape)], value=tensor)[0]
    pool.keep(made, FLOAT, shape, 1.0)


def ranged(pool: Pool) -> None:
    count = pool.rng.randint(2, 4)
    kind = pool.rng.choice((np.int64, np.float32))
    given = [pool.scalar(number, kind) for number in (0, count, 1)]
    made = pool.add("Range", given)[0]
    pool.keep(made, INT64 if kind is np.int64 else FLOAT, (count,), count)


def sequence(pool: Pool) -> None:
    x = pool.take(least=1)
    made = pool.add("SequenceConstruct", [x, x])[0]
    if pool.rng.random() < 0.5:
        made = pool.add("SequenceInsert", [made, x, pool.scalar(0)])[0]
    pool.one("SequenceAt", [made, pool.scalar(1)], x)


def dropout(pool: Pool) -> None:
    """Dropout in inference, with its mask, without, or with a ratio."""
    x = pool.take()
    given = [x, pool.scalar(0.5, np.float32)] if pool.rng.random() < 0.5 else [x]
    pool.keep(pool.add("Dropout", given, pool.rng.randint(1, 2))[0], FLOAT, x.shape, x.bound)


_TABLE: dict[Row, int] = {
    **dict.fromkeys((reshape, transpose, flatten, unsqueeze, squeeze, concat, split), 13),
    **dict.fromkeys((slices, gather, gather_elements, gather_nd, scatter, expand, tile), 13),
    **dict.fromkeys((pad, depth, resize, shape_of, filled, ranged, sequence, dropout), 13),
    trilu: 14,
}
ROWS: dict[str, tuple[int, Row]] = {row.__name__: (since, row) for row, since in _TABLE.items()}
