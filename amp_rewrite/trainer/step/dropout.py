"""Dropout whose random numbers are a function of a counter, so that training can be resumed.

The kernels of ONNX Runtime draw from a generator that lives in the session and that nothing can
read or set. A step therefore computes the masks itself, from the number of the step, the number of
the Dropout node and the position of the element, with integer operators that every provider has,
and faster than the generator.

The last rounds, the only ones per element, are the permutation x * (2 x + 1) modulo 2^32 of
R. Rivest, M. Robshaw, R. Sidney, Y. Yin, "The RC6 Block Cipher", 1998
(https://people.csail.mit.edu/rivest/pubs/RRSY98.pdf): the high bits, which decide, depend on all
lower ones.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from amp_rewrite.builder.builder import Builder
from amp_rewrite.builder.known import constant_tensor
from amp_rewrite.graph.keys import DROPOUT_KEY
from amp_rewrite.graph.part import Part
from amp_rewrite.trainer.step.cut import values_by_name
from amp_rewrite.trainer.step.step_info import StateInfo

COUNTER = "random/counter"
"""The state that counts steps for the random numbers; int64, shape ()."""

_POSITION = 0x9E3779B9  # 2^32 divided by the golden ratio: spreads consecutive numbers
_STEP, _NODE, _COLUMN = 0x5851F42D, 0x14057B7E, 0x3C6EF372  # tell steps, nodes and axes apart
_FACTORS, _DIVISORS = (0x7FEB352D, 0x46CA68B5, 0x31848BAB), (1 << 16, 1 << 15, 1 << 16)
_COUNTS = 1 << 31
_MODULUS = 1 << 32
_ROW, _ROUNDS = 256, 2


def replace_dropouts(model: ir.Model, seed: int = 0) -> list[StateInfo]:
    """Replace every Dropout of the main graph that is in training mode.

    `mask = hash(counter, node, position) >= ratio * 2^32 - 2^31`, and the output is
    `where(mask, data / (1 - ratio), 0)`.

    Args:
        model: A training step; changed in place.
        seed: The counter begins at a number derived from it.

    Returns:
        The state that counts the steps; nothing if no Dropout trains.
    """
    graph = model.graph
    dropouts = [node for node in graph if _trains(node)]
    if not dropouts:
        return []
    builder = Builder(model, scope="random", part=Part.RANDOM)
    counter = _counter(graph, seed)
    key, columns = _shared(builder, counter)
    for number, node in enumerate(dropouts):
        site = builder.op("Add", key, builder.constant((number + 1) * _NODE))
        _replace(builder, node, _mask(builder, node, site, columns))
    following = builder.op("Add", counter, builder.constant(1))
    following.name = f"{COUNTER}:next"
    graph.sort()
    return [StateInfo(COUNTER, f"{COUNTER}:next", "random", "int64", ())]


def remove_dropouts(model: ir.Model) -> None:
    """Let data through where a Dropout node was: the step computes what inference does."""
    values = values_by_name(model.graph)
    for node in list(model.graph):
        name = node.metadata_props.get(DROPOUT_KEY)
        if name is None:
            continue
        old = node.outputs[0]
        through = _through(node, values[name], old)
        values[str(old.name)] = through  # for a Dropout that reads this one
        ir.convenience.replace_all_uses_with(old, through, replace_graph_outputs=True)
        through.name, old.name = old.name, f"{old.name}:training"


def _through(node: ir.Node, data: ir.Value, old: ir.Value) -> ir.Value:
    """Return data in the type of `old`; a rewritten step may give what comes in and out two."""
    cast = None not in (old.dtype, data.dtype) and old.dtype is not data.dtype
    name = f"{node.name}/inference"
    if cast and old.dtype is not None:
        new = ir.node("Cast", [data], {"to": old.dtype.value}, name=name)
    else:
        new = ir.node("Identity", [data], name=name)
    new.outputs[0].type, new.outputs[0].shape = old.type, old.shape
    node.prepend(new)
    return new.outputs[0]


def spread_masks(model: ir.Model, rank: int) -> None:
    """Give one of several shards masks of its own; the state that counts stays that of all.

    The masks are those of a step `rank * 0x5851F42D` later, modulo 2^31: far from any that another
    shard meets.

    Args:
        model: A training step; changed in place.
        rank: The number of the shard; 0 changes nothing.
    """
    counter = next((v for v in model.graph.inputs if v.name == COUNTER), None)
    if counter is None or not rank:
        return
    offset = ir.Value(
        name=f"{COUNTER}:shard",
        type=ir.TensorType(ir.DataType.INT64),
        shape=ir.Shape([]),
        const_value=ir.tensor(np.array(rank * _STEP % _COUNTS, np.int64)),
    )
    model.graph.register_initializer(offset)
    readers = [u for u in counter.uses() if u.node.outputs[0].name != f"{COUNTER}:next"]
    own = ir.node("Add", [counter, offset], name="random/shard")
    own.outputs[0].name, own.outputs[0].type = "random/shard", counter.type
    own.outputs[0].shape = counter.shape
    model.graph.insert_before(model.graph[0], own)
    for use in readers:
        use.node.replace_input_with(use.idx, own.outputs[0])


def _trains(node: ir.Node) -> bool:
    if node.op_type != "Dropout" or node.domain or len(node.inputs) < 3:
        return False
    mode = node.inputs[2]
    known = None if mode is None else constant_tensor(mode)
    return known is not None and bool(known.numpy())


def _counter(graph: ir.Graph, seed: int) -> ir.Value:
    start = np.array(seed * _POSITION % _COUNTS, np.int64)
    value = ir.Value(
        name=COUNTER,
        type=ir.TensorType(ir.DataType.INT64),
        shape=ir.Shape([]),
        const_value=ir.tensor(start, name=COUNTER),
    )
    graph.inputs.append(value)
    graph.register_initializer(value)
    return value


def _shared(b: Builder, counter: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return what all nodes share in one step: the hashed counter, and the numbers of columns."""
    key = b.op("Mul", b.op("Mod", counter, b.constant(_COUNTS)), b.constant(_STEP))
    key = _hashed(b, key)
    columns = _numbers(b, b.constant(_ROW), b.op("Add", key, b.constant(_COLUMN)))
    return key, b.op("Unsqueeze", columns, b.constant([0]))


def _mask(b: Builder, node: ir.Node, key: ir.Value, columns: ir.Value) -> ir.Value:
    """Return which elements stay; bool, shaped like the data.

    Element i * _ROW + j gets the number f(f(r_i + c_j)), f(x) = x * (2 x + 1): r and c are hashed
    thoroughly, which costs little since there are few of them.
    """
    data, ratio = node.inputs[0], node.inputs[1]
    assert data is not None, "the first input of Dropout is not optional"
    size = b.size(data)
    rows = b.op("Div", b.op("Add", size, b.constant(_ROW - 1)), b.constant(_ROW))
    r = b.op("Unsqueeze", _numbers(b, rows, key), b.constant([1]))
    x = b.op("Add", r, columns)
    one = b.constant(np.array(1, np.int32))
    for _ in range(_ROUNDS):
        x = b.op("Mul", x, b.op("Add", b.op("Add", x, x), one))
    stays = b.op("GreaterOrEqual", x, _limit(b, ratio))
    stays = b.op("Reshape", stays, b.constant([-1]))
    end = b.op("Reshape", size, b.constant([1]))
    return b.op("Reshape", b.op("Slice", stays, b.constant([0]), end), b.shape(data))


def _numbers(b: Builder, count: ir.Value, key: ir.Value) -> ir.Value:
    """Return `count` random numbers; int32, shape (count,)."""
    positions = b.op("Range", b.constant(0), count, b.constant(1))
    x = _hashed(b, b.op("Add", b.op("Mul", positions, b.constant(_POSITION)), key))
    centred = b.op("Sub", b.op("Mod", x, b.constant(_MODULUS)), b.constant(_MODULUS // 2))
    return b.op("Cast", centred, to=ir.DataType.INT32.value)


def _hashed(b: Builder, x: ir.Value) -> ir.Value:
    """Mix the bits of non-negative int64 numbers, modulo 2^32.

    Multiplications carry them upwards, divisions downwards.
    """
    x = b.op("Mod", x, b.constant(_MODULUS))
    for factor, divisor in zip(_FACTORS, _DIVISORS, strict=True):
        x = b.op("Add", x, b.op("Div", x, b.constant(divisor)))  # the product stays below 2^63
        x = b.op("Mod", b.op("Mul", x, b.constant(factor)), b.constant(_MODULUS))
    return b.op("Add", x, b.op("Div", x, b.constant(1 << 16)))


def _limit(b: Builder, ratio: ir.Value | None) -> ir.Value:
    """Return ratio * 2^32 - 2^31, computed in float64, as int32."""
    known = np.array(0.5) if ratio is None else b.array(ratio)
    if known is not None:
        limit = np.float64(known.reshape(-1)[0]) * _MODULUS - _MODULUS // 2
        bounds = np.iinfo(np.int32)
        return b.constant(np.clip(limit, bounds.min, bounds.max).astype(np.int32))
    double = ir.DataType.DOUBLE
    limit = b.op("Mul", b.op("Cast", ratio, to=double.value), b.constant(float(_MODULUS), double))
    return b.op(
        "Cast", b.op("Add", limit, b.constant(-_MODULUS / 2, double)), to=ir.DataType.INT32.value
    )


def _kept(b: Builder, ratio: ir.Value | None, dtype: ir.DataType) -> ir.Value:
    """Return 1 / (1 - ratio) in a type."""
    known = np.array(0.5) if ratio is None else b.array(ratio)
    if known is not None:
        left = 1 - float(known.reshape(-1)[0])
        return b.constant(1 / left if left else 0.0, dtype)  # with nothing left it does not matter
    share = b.op("Cast", ratio, to=dtype.value)
    return b.op("Div", b.constant(1.0, dtype), b.op("Sub", b.constant(1.0, dtype), share))


def _replace(b: Builder, node: ir.Node, mask: ir.Value) -> None:
    data, ratio = node.inputs[0], node.inputs[1]
    assert data is not None, "the first input of Dropout is not optional"
    dtype = data.dtype or ir.DataType.FLOAT
    result = b.op("Where", mask, b.op("Mul", data, _kept(b, ratio, dtype)), b.constant(0.0, dtype))
    producer = result.producer()
    assert producer is not None, "a node has just been added"
    producer.metadata_props[DROPOUT_KEY] = str(data.name)
    for old, new in zip(node.outputs, (result, mask), strict=False):
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        name, old.name = old.name, f"{old.name}:replaced"
        new.name = name
        new.type, new.shape = old.type or new.type, old.shape or new.shape
    b.graph.remove(node, safe=True)
