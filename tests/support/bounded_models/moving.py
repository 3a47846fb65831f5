"""Operators that move elements, and those of shapes that they take: nothing is computed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bounded_models.scope import Row, Scope, Value

Way = Callable[[Scope, Value], str]


def moving(way: Way) -> Row:
    """Return the row of nodes that bring elements, or some of them, to other places."""

    def row(scope: Scope) -> None:
        x = scope.pick_exact() if scope.rng.random() < 0.2 else scope.pick()
        scope.keep(way(scope, x), x.bound, x.error, moved=True)

    return row


def ints(scope: Scope, *numbers: int) -> str:
    return scope.constant(list(numbers), np.int64)


def reshape(s: Scope, x: Value) -> str:
    shape = s.add("Shape", [x])[0]
    return s.add("Reshape", [s.add("Reshape", [x, ints(s, 8)])[0], shape])[0]


def transpose(s: Scope, x: Value) -> str:
    return s.add("Transpose", [s.add("Transpose", [x], perm=[1, 0])[0]], perm=[1, 0])[0]


def flatten(s: Scope, x: Value) -> str:
    image = s.add("Unsqueeze", [x, ints(s, 2)])[0]
    return s.add("Flatten", [image], axis=1)[0]


def squeeze(s: Scope, x: Value) -> str:
    return s.add("Squeeze", [s.add("Unsqueeze", [x, ints(s, 0)])[0]])[0]


def split(s: Scope, x: Value) -> str:
    left, right = s.add("Split", [x], 2, axis=1, num_outputs=2)
    return s.add("Concat", [right, left], axis=1)[0]


def slices(s: Scope, x: Value) -> str:
    if s.rng.random() < 0.5:
        return s.add("Slice", [x, ints(s, -1), ints(s, -9), ints(s, 1), ints(s, -1)])[0]
    head = s.add("Slice", [x, ints(s, 0), ints(s, 1)])[0]
    tail = s.add("Slice", [x, ints(s, 1), ints(s, 2), ints(s, 0)])[0]
    return s.add("Concat", [tail, head], axis=0)[0]


def gather(s: Scope, x: Value) -> str:
    return s.add("Gather", [x, ints(s, 3, 1, 1, 0)], axis=1)[0]


def gather_elements(s: Scope, x: Value) -> str:
    places = s.constant([[0, 3, 2, 1], [1, 1, 0, 2]], np.int64)
    return s.add("GatherElements", [x, places], axis=1)[0]


def gather_nd(s: Scope, x: Value) -> str:
    return s.add("GatherND", [x, s.constant([[1], [0]], np.int64)])[0]


def scatter_elements(s: Scope, x: Value) -> str:
    places = s.constant([[0, 3, 2, 1], [1, 0, 3, 2]], np.int64)
    return s.add("ScatterElements", [x, places, x], axis=1)[0]


def scatter_nd(s: Scope, x: Value) -> str:
    return s.add("ScatterND", [x, s.constant([[1], [0]], np.int64), x])[0]


def expand(s: Scope, x: Value) -> str:
    row = s.add("Gather", [x, s.constant(0, np.int64)], axis=0)[0]
    return s.add("Expand", [row, ints(s, 2, 4)])[0]


def tile(s: Scope, x: Value) -> str:
    wide = s.add("Tile", [x, ints(s, 1, 2)])[0]
    return s.add("Slice", [wide, ints(s, 2), ints(s, 6), ints(s, 1)])[0]


def pad(s: Scope, x: Value) -> str:
    given = [x, ints(s, 0, 1, 0, -1)]
    if s.rng.random() < 0.5:
        given.append(s.constant(0))
    return s.add("Pad", given)[0]


def reverse_sequence(s: Scope, x: Value) -> str:
    return s.add("ReverseSequence", [x, ints(s, 4, 2)], batch_axis=0, time_axis=1)[0]


def trilu(s: Scope, x: Value) -> str:
    return s.add("Trilu", [x, s.constant(1, np.int64)])[0]


def depth_to_space(s: Scope, x: Value) -> str:
    image = s.add("Reshape", [x, ints(s, 1, 4, 1, 2)])[0]
    spread = s.add("DepthToSpace", [image], blocksize=2)[0]
    back = s.add("SpaceToDepth", [spread], blocksize=2)[0]
    return s.add("Reshape", [back, ints(s, 2, 4)])[0]


def compress(s: Scope, x: Value) -> str:
    twice = s.add("Concat", [x, x], axis=0)[0]
    keep = s.constant([True, False, False, True], np.bool_)
    return s.add("Compress", [twice, keep], axis=0)[0]


def resize(s: Scope, x: Value) -> str:
    image = s.add("Reshape", [x, ints(s, 1, 1, 2, 4)])[0]
    scales = s.constant([1, 1, 1, 2])
    wide = s.add("Resize", [image, "", scales], mode="nearest")[0]
    flat = s.add("Reshape", [wide, ints(s, 2, 8)])[0]
    return s.add("Slice", [flat, ints(s, 0), ints(s, 8), ints(s, 1), ints(s, 2)])[0]


def largest(s: Scope, x: Value) -> str:
    return s.add("TopK", [x, ints(s, 4)], 2, axis=1)[0]


def sized(s: Scope, x: Value) -> str:
    """Reshape by what Shape, Size, Gather and Div say of a value."""
    rows = s.add("Gather", [s.add("Shape", [x])[0], ints(s, 0)])[0]
    columns = s.add("Div", [s.add("Size", [x])[0], rows])[0]
    return s.add("Reshape", [x, s.add("Concat", [rows, columns], axis=0)[0]])[0]


def ranged(s: Scope, x: Value) -> str:
    places = s.add("Range", [s.constant(n, np.int64) for n in (3, -1, -1)])[0]
    return s.add("Gather", [x, places], axis=1)[0]


def sequence(s: Scope, x: Value) -> str:
    made = s.add("SequenceConstruct", [x, x])[0]
    longer = s.add("SequenceInsert", [made, x, s.constant(0, np.int64)])[0]
    shorter = s.add("SequenceErase", [longer])[0]
    last = s.add("Sub", [s.add("SequenceLength", [shorter])[0], s.constant(1, np.int64)])[0]
    return s.add("SequenceAt", [shorter, last])[0]


def split_to_sequence(s: Scope, x: Value) -> str:
    parts = s.add("SplitToSequence", [x, s.constant(2, np.int64)], axis=1)[0]
    return s.add("ConcatFromSequence", [parts], axis=1)[0]


def empty_sequence(s: Scope, x: Value) -> str:
    empty = s.add("SequenceEmpty", [], dtype=1)[0]
    one = s.add("SequenceInsert", [empty, x])[0]
    stacked = s.add("ConcatFromSequence", [one], axis=0, new_axis=1)[0]
    return s.add("Squeeze", [stacked, ints(s, 0)])[0]


WAYS: dict[str, Way] = {
    "Reshape": reshape,
    "Transpose": transpose,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Split": split,
    "Slice": slices,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "Expand": expand,
    "Tile": tile,
    "Pad": pad,
    "ReverseSequence": reverse_sequence,
    "Trilu": trilu,
    "DepthToSpace": depth_to_space,
    "Compress": compress,
    "Resize": resize,
    "TopK": largest,
    "Size": sized,
    "Range": ranged,
    "SequenceConstruct": sequence,
    "SplitToSequence": split_to_sequence,
    "SequenceEmpty": empty_sequence,
}

ROWS: dict[str, Row] = {op: moving(way) for op, way in WAYS.items()}
