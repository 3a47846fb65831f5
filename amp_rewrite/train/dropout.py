"""Dropout whose random numbers are a function of a counter, so that training can be resumed.

The kernels of ONNX Runtime draw from a generator that lives in the session and that nothing can
read or set. A step therefore computes the masks itself, from the number of the step, the number of
the Dropout node and the position of the element, in integer arithmetic that wraps around modulo
2^32: the same on every provider, and no slower than the generator.

Two rounds of the quadratic map x * (x + c) (the mixing function of RC6: R. Rivest, M. Robshaw,
R. Sidney, Y. Yin, "The RC6 Block Cipher", 1998,
https://people.csail.mit.edu/rivest/pubs/RRSY98.pdf) make the high bits depend on all lower ones.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from amp_rewrite.grad.builder import Builder
from amp_rewrite.train.info import StateInfo

COUNTER = "random/counter"
"""The state that counts steps for the random numbers; int32, shape ()."""

SITE = "amp_rewrite.dropout"
"""The metadata key of the node that stands for a Dropout node; its value is the name of the data
that the Dropout node read."""

_INT = ir.DataType.INT32
_POSITION = (
    -1640531527
)  # 2^32 divided by the golden ratio, modulo 2^32: spreads consecutive numbers
_STEP, _NODE = -2048144789, -1028477379  # large odd numbers, to tell steps and nodes apart
_FIRST, _SECOND = 0x2545F491, 0x1B873593
_RANGE, _LOWEST = 2.0**32, -(2.0**31)


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
    builder = Builder(model, scope="random")
    counter = _counter(graph, seed)
    for number, node in enumerate(dropouts):
        _replace(builder, node, _mask(builder, node, number, counter))
    following = builder.op("Add", counter, builder.constant(np.int32(1)))
    following.name = f"{COUNTER}:next"
    graph.sort()
    return [StateInfo(COUNTER, f"{COUNTER}:next", "random", "int32", ())]


def remove_dropouts(model: ir.Model) -> None:
    """Let data through where a Dropout node was: the step computes what inference does."""
    values = {v.name: v for node in model.graph for v in node.outputs}
    values.update({v.name: v for v in model.graph.inputs})
    for node in list(model.graph):
        name = node.metadata_props.get(SITE)
        if name is not None:
            data = values[name]
            ir.convenience.replace_all_uses_with(node.outputs[0], data, replace_graph_outputs=True)


def _trains(node: ir.Node) -> bool:
    if node.op_type != "Dropout" or node.domain or len(node.inputs) < 3:
        return False
    mode = node.inputs[2]
    known = None if mode is None else ir.convenience.get_const_tensor(mode)
    return known is not None and bool(known.numpy())


def _counter(graph: ir.Graph, seed: int) -> ir.Value:
    start = np.array((seed * _POSITION) & 0xFFFFFFFF, np.uint32).view(np.int32)
    value = ir.Value(
        name=COUNTER,
        type=ir.TensorType(_INT),
        shape=ir.Shape([]),
        const_value=ir.tensor(start, name=COUNTER),
    )
    graph.inputs.append(value)
    graph.register_initializer(value)
    return value


def _mask(b: Builder, node: ir.Node, number: int, counter: ir.Value) -> ir.Value:
    """Return which elements stay; bool, shaped like the data."""

    def number_of(value: int) -> ir.Value:
        return b.constant(np.array(value & 0xFFFFFFFF, np.uint32).view(np.int32))

    data, ratio = node.inputs[0], node.inputs[1]
    key = b.op("Add", b.op("Mul", counter, number_of(_STEP)), number_of((number + 1) * _NODE))
    key = b.op("Mul", key, b.op("Add", key, number_of(_FIRST)))
    count = b.op("Cast", b.op("Size", data), to=_INT.value)
    position = b.op("Range", number_of(0), count, number_of(1))
    x = b.op("Add", b.op("Mul", position, number_of(_POSITION)), key)
    x = b.op("Mul", x, b.op("Add", x, number_of(_FIRST)))
    x = b.op("Mul", x, b.op("Add", x, b.op("Add", key, number_of(_SECOND))))
    double = ir.DataType.DOUBLE
    share = b.constant(0.5, double) if ratio is None else b.op("Cast", ratio, to=double.value)
    limit = b.op("Mul", share, b.constant(_RANGE, double))
    limit = b.op("Cast", b.op("Add", limit, b.constant(_LOWEST, double)), to=_INT.value)
    return b.op("Reshape", b.op("GreaterOrEqual", x, limit), b.op("Shape", data))


def _replace(b: Builder, node: ir.Node, mask: ir.Value) -> None:
    data, ratio = node.inputs[0], node.inputs[1]
    assert data is not None, "the first input of Dropout is not optional"
    dtype = data.dtype or ir.DataType.FLOAT
    share = b.constant(0.5, dtype) if ratio is None else b.op("CastLike", ratio, data)
    kept = b.op("Div", b.constant(1.0, dtype), b.op("Sub", b.constant(1.0, dtype), share))
    result = b.op("Where", mask, b.op("Mul", data, kept), b.constant(0.0, dtype))
    producer = result.producer()
    assert producer is not None, "a node has just been added"
    producer.metadata_props[SITE] = str(data.name)
    for old, new in zip(node.outputs, (result, mask), strict=False):
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        name, old.name = old.name, f"{old.name}:replaced"
        new.name = name
        new.type, new.shape = old.type or new.type, old.shape or new.shape
    b.graph.remove(node, safe=True)
