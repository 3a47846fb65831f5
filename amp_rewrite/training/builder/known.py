"""What is known about a value: its type, the lengths of its axes, and what a constant holds."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.graph.flat_model import held_tensor

Length = int | str | None
"""A length, the name of one, or unknown."""


def type_of(value: ir.Value) -> ir.DataType:
    """Return a value's element type.

    Raises:
        GradientError: It is not known.
    """
    if value.dtype is None:
        raise GradientError(
            "the element type of a value is not known",
            where=f"value {value.name!r}",
            remedy="record its type in the model's value_info",
        )
    return value.dtype


def dims(value: ir.Value) -> tuple[int | None, ...] | None:
    """Return the lengths of a value's axes, None where not static; None for unknown rank."""
    symbolic = symbolic_dims(value)
    if symbolic is None:
        return None
    return tuple(d if isinstance(d, int) else None for d in symbolic)


def symbolic_dims(value: ir.Value) -> tuple[Length, ...] | None:
    """Return the lengths of a value's axes; equal names are equal lengths."""
    if value.shape is None:
        return None
    return tuple(d if isinstance(d, int) else d.value for d in value.shape.dims)


def rank(value: ir.Value) -> int | None:
    """Return a value's rank if it is known."""
    return None if value.shape is None else len(value.shape.dims)


def differ(one: Sequence[int | None], other: Sequence[int | None]) -> bool:
    """Return whether two shapes are known to be different."""
    pairs: Sequence[tuple[int | None, int | None]] = list(zip(one, other, strict=False))
    return len(one) != len(other) or any(x != y for x, y in pairs if None not in (x, y))


def same_shape(x: ir.Value, y: ir.Value) -> bool:
    """Return whether two values are known to have one shape."""
    lengths = symbolic_dims(x)
    return lengths is not None and None not in lengths and lengths == symbolic_dims(y)


def shaped_like(value: ir.Value, like: ir.Value) -> ir.Value:
    """Record that `value` has the shape of `like`, which inference may not see; return it."""
    theirs, ours = symbolic_dims(like), symbolic_dims(value)
    if theirs is None or value is like:
        return value
    if ours is None or len(ours) != len(theirs):
        value.shape = ir.Shape(theirs)
    else:
        pairs = zip(ours, theirs, strict=True)
        value.shape = ir.Shape(a if isinstance(a, int) or b is None else b for a, b in pairs)
    return value


def constant_tensor(value: ir.Value) -> ir.TensorProtocol | None:
    """Return the tensor of an initializer or of a Constant node; None for what is neither.

    `onnx_ir.convenience.get_const_tensor` names the tensor of a node, which clones share, anew. An
    initializer that is a graph input too can be fed, hence is not a constant.
    """
    if value.is_graph_input():
        return None
    node = value.producer()
    return value.const_value if node is None else held_tensor(node)
