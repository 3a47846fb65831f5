"""Dropout whose random numbers are a function of a counter, so that training can be resumed.

The kernels of ONNX Runtime draw from a generator that lives in the session and that nothing can
read or set. A step therefore computes the masks itself, from the number of the step, the number of
the Dropout node and the position of the element (`RandomNumbers`), which is faster than the
generator.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import (
    constant_tensor,
    copy_of,
    hold,
    input_of,
    maker,
    take_place,
)
from amp_rewrite.grad.builder.random_numbers import (
    COUNTS,
    MODULUS,
    POSITION,
    STEP,
    RandomNumbers,
    first,
)
from amp_rewrite.graph.metadata_keys import DROPOUT_KEY
from amp_rewrite.graph.step_part import Part
from amp_rewrite.training.step.cut_step import values_by_name
from amp_rewrite.training.step.step_info import StateInfo

COUNTER = "random/counter"
"""The state that counts steps for the random numbers; int64, shape ()."""


def replace_dropouts(model: ir.Model, seed: int = 0) -> list[StateInfo]:
    """Replace every Dropout of the main graph that is in training mode; return its counter.

    `mask = hash(counter, node, position) >= ratio * 2^32 - 2^31`, and the output is
    `where(mask, data / (1 - ratio), 0)`. The counter begins at a number derived from `seed`.
    """
    graph = model.graph
    dropouts = [node for node in graph if _trains(node)]
    if not dropouts:
        return []
    builder = Builder(model, scope="random", part=Part.RANDOM)
    counter = hold(graph, COUNTER, np.array(seed * POSITION % COUNTS, np.int64))
    graph.inputs.append(counter)
    random = RandomNumbers(builder, counter)
    for number, node in enumerate(dropouts):
        _replace(builder, node, _mask(builder, node, random, number))
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
        take_place(through, old)


def _through(node: ir.Node, data: ir.Value, old: ir.Value) -> ir.Value:
    """Return data in the type of `old`; a rewritten step may give what comes in and out two."""
    cast = None not in (old.dtype, data.dtype) and old.dtype is not data.dtype
    name = f"{node.name}/inference"
    if cast and old.dtype is not None:
        new = ir.node("Cast", [data], {"to": old.dtype.value}, name=name).outputs[0]
    else:
        new = copy_of(data, name, node=name)
    new.type, new.shape = old.type, old.shape
    node.prepend(maker(new))
    return new


def spread_masks(model: ir.Model, rank: int) -> None:
    """Give one of several shards masks of its own; the state that counts stays that of all.

    The masks are those of a step `rank * 0x5851F42D` later, modulo 2^31: far from any that another
    shard meets. Rank 0 changes nothing.
    """
    counter = next((v for v in model.graph.inputs if v.name == COUNTER), None)
    if counter is None or not rank:
        return
    offset = hold(model.graph, f"{COUNTER}:shard", np.array(rank * STEP % COUNTS, np.int64))
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
    constant = None if mode is None else constant_tensor(mode)
    return constant is not None and bool(constant.numpy())


def _mask(b: Builder, node: ir.Node, random: RandomNumbers, number: int) -> ir.Value:
    """Return which elements stay; bool, shaped like the data."""
    data, ratio = input_of(node, 0), node.inputs[1]
    size = b.size(data)
    stays = b.op("GreaterOrEqual", random.rows(number, size), _limit(b, ratio))
    return first(b, stays, size, b.shape(data))


def _limit(b: Builder, ratio: ir.Value | None) -> ir.Value:
    """Return ratio * 2^32 - 2^31, computed in float64, as int32."""
    rate = np.array(0.5) if ratio is None else b.array(ratio)
    if rate is not None:
        limit = np.float64(rate.reshape(-1)[0]) * MODULUS - MODULUS // 2
        bounds = np.iinfo(np.int32)
        return b.constant(np.clip(limit, bounds.min, bounds.max).astype(np.int32))
    double = ir.DataType.DOUBLE
    limit = b.op("Mul", b.op("Cast", ratio, to=double.value), b.constant(float(MODULUS), double))
    return b.op(
        "Cast", b.op("Add", limit, b.constant(-MODULUS / 2, double)), to=ir.DataType.INT32.value
    )


def _kept(b: Builder, ratio: ir.Value | None, dtype: ir.DataType) -> ir.Value:
    """Return 1 / (1 - ratio) in a type."""
    rate = np.array(0.5) if ratio is None else b.array(ratio)
    if rate is not None:
        left = 1 - float(rate.reshape(-1)[0])
        return b.constant(1 / left if left else 0.0, dtype)  # with nothing left it does not matter
    share = b.op("Cast", ratio, to=dtype.value)
    return b.op("Div", b.constant(1.0, dtype), b.op("Sub", b.constant(1.0, dtype), share))


def _replace(b: Builder, node: ir.Node, mask: ir.Value) -> None:
    data, ratio = input_of(node, 0), node.inputs[1]
    dtype = data.dtype or ir.DataType.FLOAT
    result = b.op("Where", mask, b.op("Mul", data, _kept(b, ratio, dtype)), b.constant(0.0, dtype))
    maker(result).metadata_props[DROPOUT_KEY] = str(data.name)
    for old, new in zip(node.outputs, (result, mask), strict=False):
        take_place(new, old)
    b.graph.remove(node, safe=True)
