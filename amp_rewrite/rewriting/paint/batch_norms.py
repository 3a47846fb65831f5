"""The MatMul that ONNX Runtime would fuse a BatchNormalization into."""

from __future__ import annotations

from amp_rewrite.graph.flat import ABSENT, FlatGraph

# operators: what the runtime looks through between the two; Casts are gone where types agree.
_LOOKED_THROUGH = frozenset({"Reshape", "Transpose", "Identity"})


def product_before(flat: FlatGraph, node: int, *, through_casts: bool = False) -> int:
    """Return the MatMul that makes what a BatchNormalization reads, moved or not, else ABSENT."""
    passed = _LOOKED_THROUGH | {"Cast"} if through_casts else _LOOKED_THROUGH
    maker = _maker(flat, node)
    while maker != ABSENT:
        called = flat.called(maker)
        if called[:2] == ("", "MatMul"):
            return maker
        if called.domain or called.op_type not in passed:
            break
        maker = _maker(flat, maker)
    return ABSENT


def _maker(flat: FlatGraph, node: int) -> int:
    """Return the node that makes the first input of one; ABSENT if none does."""
    read = flat.inputs_of(node)
    return flat.producer[read[0]] if read and read[0] != ABSENT else ABSENT
