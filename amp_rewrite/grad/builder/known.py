"""Facts about a value: its type, the lengths of its axes, and the content of a constant."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.graph.tensors import held_tensor

Length = int | str | None
"""A length, the name of one, or unknown."""


def type_of(value: ir.Value) -> ir.DataType:
    """Return a value's element type."""
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


def is_float(value: ir.Value, *, unknown: bool = False) -> bool:
    """Return whether a value is floating-point; `unknown` is the answer if it has no known type."""
    return unknown if value.dtype is None else value.dtype.is_floating_point()


def copied(shape: ir.Shape | None) -> ir.Shape | None:
    """Return a shape of its own for another value, which may change it."""
    return None if shape is None else shape.copy()


def may_have(value: ir.Value, shape: Sequence[int]) -> bool:
    """Return whether a value has a shape, as far as its own is known."""
    lengths = dims(value)
    return lengths is None or not differ(lengths, shape)


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


_MADE_UP = "unk__"
"""The prefix of the names that onnx's inference gives to lengths it knows nothing about."""

Dim = int | ir.SymbolicDim


_UNKNOWN = ("?", "")
"""Names that exporters give to unknown lengths; two of them need not be equal."""


def forget_unknown(graph: ir.Graph) -> None:
    """Take the names from lengths that only say that they are not known."""
    values = [*graph.inputs, *graph.outputs, *(v for n in graph for v in n.outputs)]
    for value in values:
        dims = () if value.shape is None else value.shape.dims
        if any(not isinstance(d, int) and d.value in _UNKNOWN for d in dims):
            value.shape = ir.Shape(
                [None if not isinstance(d, int) and d.value in _UNKNOWN else d for d in dims]
            )


def is_vague(shape: ir.Shape | None) -> bool:
    """Return whether a shape has a length that is neither a number nor a name of the model's."""
    return shape is None or any(_weight(d) < 2 for d in shape.dims)


def better_shape(old: ir.Shape | None, new: ir.Shape | None) -> ir.Shape | None:
    """Return what two statements about one shape say together; `new` wins a draw."""
    if old is None or new is None or len(old.dims) != len(new.dims):
        return old if new is None else new
    pairs = zip(old.dims, new.dims, strict=True)
    return ir.Shape([a if _weight(a) > _weight(b) else b for a, b in pairs])


def _weight(dim: Dim) -> int:
    """Rank a length: a number, a name of the model's, a made-up name, nothing."""
    if isinstance(dim, int):
        return 3
    if dim.value is None:
        return 0
    return 1 if str(dim.value).startswith(_MADE_UP) else 2


def solve_reshape(node: ir.Node) -> None:
    """Record what the -1 of a constant target shape is, where names cancel.

    (batch, seq, 768) as (0, -1, 12, 64) is (batch, seq, 12, 64): batch seq 768 / (batch 12 64).
    """
    data, target = node.inputs[:2]
    output = node.outputs[0]
    tensor = None if target is None else constant_tensor(target)
    if data is None or data.shape is None or tensor is None or output.shape is None:
        return
    wanted = [int(n) for n in tensor.numpy().reshape(-1)]
    lengths = list(data.shape.dims)
    if wanted.count(-1) != 1 or any(n == 0 and i >= len(lengths) for i, n in enumerate(wanted)):
        return
    result: list[Dim] = [lengths[i] if n == 0 else n for i, n in enumerate(wanted)]
    position = wanted.index(-1)
    quotient = _quotient(lengths, result[:position] + result[position + 1 :])
    if quotient is not None:
        result[position] = quotient
        output.shape = better_shape(output.shape, ir.Shape(result))


def _quotient(over: list[Dim], under: list[Dim]) -> Dim | None:
    """Return the product of lengths divided by another, if it is one length."""
    names = Counter(str(d.value) for d in over if not isinstance(d, int) and d.value is not None)
    below = Counter(str(d.value) for d in under if not isinstance(d, int) and d.value is not None)
    unnamed = sum(not isinstance(d, int) and d.value is None for d in (*over, *under))
    if unnamed or below - names:
        return None
    left = list((names - below).elements())
    top = math.prod(d for d in over if isinstance(d, int))
    bottom = math.prod(d for d in under if isinstance(d, int))
    if not bottom or not top or top % bottom:
        return None
    if not left:
        return top // bottom
    return ir.SymbolicDim(left[0]) if len(left) == 1 and top == bottom else None


def take_place(new: ir.Value, old: ir.Value) -> None:
    """Let a value be read where another one is, under its name; what that does not tell stays."""
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    new.name, old.name = old.name or new.name, f"{old.name}:before"
    new.type = old.type or new.type
    new.shape = new.shape if old.shape is None else old.shape  # that of a scalar is false


def copy_of(value: ir.Value, name: str, *, node: str | None = None) -> ir.Value:
    """Return what an Identity, which is in no graph yet, makes of a value."""
    copy = ir.node("Identity", [value], name=node).outputs[0]
    copy.name, copy.type, copy.shape = name, value.type, value.shape
    return copy


def maker(value: ir.Value) -> ir.Node:
    """Return the node that computes a value, one that has just been added, say."""
    node = value.producer()
    assert node is not None, "a node computes it"
    return node


def hold(graph: ir.Graph, name: str, array: np.ndarray[Any, Any] | ir.TensorProtocol) -> ir.Value:
    """Return a new initializer of a graph."""
    tensor = ir.tensor(array, name=name) if isinstance(array, np.ndarray) else array
    value = ir.Value(
        name=name,
        type=ir.TensorType(tensor.dtype),
        shape=ir.Shape(tensor.shape.numpy()),
        const_value=tensor,
    )
    graph.register_initializer(value)
    return value


def input_of(node: ir.Node, index: int) -> ir.Value:
    """Return an input of a node that is not optional."""
    value = node.inputs[index]
    assert value is not None, "the input is not optional"
    return value
