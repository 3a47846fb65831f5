"""Constants around convolutions, computed into their weights in the file, in float32.

A runtime that folds constants when it loads a model may do so in the low type, and cut the results
off: what multiplies there stays float32 (paint/passes/keep_cut.py), and is computed apart from the
convolution in front. In the file the same constants lose one rounding, and the operators are gone.

1. x * Clip(x + 3, 0, 6) / 6 is one HardSwish.
2. Conv, then Mul or Add with a number for each channel or for all: they go into its weights.
3. Mul with one number in front of convolutions goes into theirs, and Add, if they do not pad.
4. If they do, k x + b is c (m x + a): c goes into the weights, and the low type holds m and a.
5. Div by a number, or Mul with one, goes into weights from which there is linear arithmetic to it
   (scale_weights.py).
6. Mul of both operands of a MatMul by numbers is one behind it: exporters multiply queries and keys
   by the fourth root of 1 / d, and bfloat16 makes all scores of heads of 32 too small by .24 %.
7. Mul by ones and Add of zeros, which exporters write for normalizations without parameters, go:
   OpenVINO drops them in float32 only.

A name that stays means the same numbers as before.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.traverse import remove_unused_nodes
from amp_rewrite.rewriting.constant_inputs import (
    Array,
    bypass,
    constant,
    either,
    number,
    remove,
    replace,
    set_inputs,
    stored,
)
from amp_rewrite.rewriting.scale_weights import is_exact, scale_weights

# operators: those without which there is nothing to fold.
AROUND = ("Conv", "Div", "Mul")

# operators: those whose constants go into weights.
_LINEAR = ("Add", "Mul")

# operators: those that have a neutral element.
_IDLE = {"Mul": 1.0, "Div": 1.0, "Add": 0.0, "Sub": 0.0}
"""Operator -> the constant with which it changes nothing, as its second operand at least."""

_MOST = 2.0**16
"""Factors of operands that are larger, or smaller than one by this, stay in front of products."""

_HARD_SWISH = 14
"""The opset from which there is a HardSwish."""


def fold_factors(model: ir.Model, low: DType) -> int:
    """Compute constants into weights, in place; return how many operators went or changed.

    Args:
        model: A model; subgraphs are left as they are.
        low: The type that is to hold what stays in front of convolutions that pad.
    """
    count = 0
    while more := _fold(model, low):  # what goes may have been what else reads a convolution
        count += more
    return count


def _fold(model: ir.Model, low: DType) -> int:
    graph = model.graph
    count = 0
    for node in list(graph) if graph.opset_imports.get("", 0) >= _HARD_SWISH else ():
        if (node.domain, node.op_type) == ("", "Div") and number(node.inputs[1]) == 6:
            count += _join_hard_swish(node)
    for fold in (_into_front, _factor_behind, _sum_behind):
        for node in list(graph):
            if node.op_type in _LINEAR and not node.domain:
                count += fold(node, low)
    count += scale_weights(model, low)
    count += sum(_behind_product(node, low) for node in list(graph))
    count += sum(_drop_idle(node) for node in list(graph))
    if count:
        remove_unused_nodes(graph)  # Constants that nothing reads any more
        for name, value in list(graph.initializers.items()):
            if not (value.uses() or value.is_graph_output() or value.is_graph_input()):
                del graph.initializers[name]
    return count


def _join_hard_swish(div: ir.Node) -> bool:
    mul = _only_maker(div.inputs[0], "Mul")
    for x, held in either(mul):
        clip = _only_maker(held, "Clip")
        add = None if clip is None else _only_maker(clip.inputs[0], "Add")
        if clip is None or add is None or x is None or len(clip.inputs) != 3:
            continue
        bounds = [number(value) for value in clip.inputs[1:]]
        if bounds == [0, 6] and any(v is x and number(c) == 3 for v, c in either(add)):
            joined = ir.node("HardSwish", [x], name=div.name)
            div.graph.insert_after(div, joined)  # pyright: ignore[reportOptionalMemberAccess]
            joined.outputs[0].type, joined.outputs[0].shape = x.type, x.shape
            replace(div, joined.outputs[0])
            for node in (mul, clip, add):
                remove(node)
            return True
    return False


def _into_front(node: ir.Node, _: DType) -> bool:
    for x, held in either(node):
        conv = _only_maker(x, "Conv")
        weights, factor = _weights(conv), constant(held)
        if conv is None or weights is None or factor is None:
            continue
        w, b = weights
        shape = (1,) * (w.ndim - factor.ndim) + factor.shape
        if len(shape) != w.ndim or shape not in ((1,) * w.ndim, (1, len(w), *(1,) * (w.ndim - 2))):
            continue
        each = np.broadcast_to(factor.ravel(), len(w))
        if node.op_type == "Mul":
            w, b = w * each.reshape(-1, *(1,) * (w.ndim - 1)), b * each
        else:
            b = b + each
        _give(conv, w, b)
        replace(node, conv.outputs[0])
        return True
    return False


def _factor_behind(mul: ir.Node, low: DType) -> bool:
    for x, held in either(mul) if mul.op_type == "Mul" else ():
        factor, result = number(held), mul.outputs[0]
        readers = [] if result.is_graph_output() else [use.node for use in result.uses()]
        if not factor or x is None:
            continue
        add = readers[0] if len(readers) == 1 and readers[0].op_type == "Add" else None
        shift = next((n for v, c in either(add) if v is mul.outputs[0] and (n := number(c))), 0.0)
        scaled = mul if add is None else add
        convs = _convolutions(scaled.outputs[0])
        if not convs or (add is not None and not shift):
            continue
        m, a = 1.0, shift / factor
        if add is not None and any(map(_pads, convs)):
            m, a = _exact_pair(a, low)
        if add is not None and (m, a) == (factor, shift):
            continue
        for conv in convs:
            w, b = _weights(conv) or (np.empty(0), np.empty(0))
            rest = shift - a * factor / m  # all of it but at the edges
            _give(conv, w * (factor / m), b + rest * _sums(w))
        if add is not None:
            operand = x if m == 1 else mul.outputs[0]
            set_inputs(add, operand, stored(add, a, f"{add.outputs[0].name}:number"))
            add.outputs[0].name = f"{add.outputs[0].name}:scaled"
        if m != 1:
            set_inputs(mul, x, stored(mul, m, f"{mul.outputs[0].name}:number"))
            mul.outputs[0].name = f"{mul.outputs[0].name}:scaled"
        elif add is not None:
            remove(mul)
        else:
            bypass(mul, x)
        return True
    return False


def _sum_behind(add: ir.Node, _: DType) -> bool:
    for x, held in either(add) if add.op_type == "Add" else ():
        shift, convs = number(held), _convolutions(add.outputs[0])
        if shift is None or x is None or not convs or any(map(_pads, convs)):
            continue
        for conv in convs:
            w, b = _weights(conv) or (np.empty(0), np.empty(0))
            _give(conv, w, b + shift * _sums(w))
        bypass(add, x)
        return True
    return False


def _behind_product(product: ir.Node, low: DType) -> bool:
    """Multiply a product by the numbers that its operands are multiplied by, if both are."""
    scaled = list[tuple[ir.Value, float]]()
    is_product = (product.domain, product.op_type) == ("", "MatMul")
    for value in product.inputs if is_product else ():
        for x, held in either(_only_maker(value, "Mul")):
            if x is not None and (factor := number(held)):
                scaled.append((x, factor))
                break
    if len(scaled) < 2 or all(is_exact(factor, low) for _, factor in scaled):
        return False
    if any(not 1 / _MOST <= abs(factor) <= _MOST for _, factor in scaled):
        return False  # without them, the product may leave the range
    result = product.outputs[0]
    muls = [value.producer() for value in product.inputs if value is not None]
    set_inputs(product, *(x for x, _ in scaled))
    for mul in muls:
        remove(mul)
    joined = ir.node("Mul", [result], name=f"{result.name}:factor")
    joined.outputs[0].type, joined.outputs[0].shape = result.type, result.shape
    product.graph.insert_after(product, joined)  # pyright: ignore[reportOptionalMemberAccess]
    ir.convenience.replace_all_uses_with(result, joined.outputs[0], replace_graph_outputs=True)
    joined.outputs[0].name, result.name = result.name, f"{result.name}:scaled"
    number_ = stored(joined, scaled[0][1] * scaled[1][1], f"{joined.outputs[0].name}:number")
    set_inputs(joined, result, number_)
    return True


def _drop_idle(node: ir.Node) -> bool:
    """Remove an operator whose constant changes nothing of what it is combined with."""
    if node.domain or node.op_type not in _IDLE or node.outputs[0].is_graph_output():
        return False
    pairs = either(node) if node.op_type in _LINEAR else (tuple(node.inputs),)
    for x, held in pairs:
        numbers = constant(held)
        if x is None or numbers is None or not (numbers == _IDLE[node.op_type]).all():
            continue
        if _fits(numbers.shape, x.shape):
            bypass(node, x)
            return True
    return False


def _fits(constant_shape: tuple[int, ...], shape: ir.Shape | None) -> bool:
    """Tell whether what is broadcast with a constant keeps its shape, for all that is known."""
    if shape is None or len(constant_shape) > len(shape):
        return False
    behind = shape.dims[len(shape) - len(constant_shape) :]
    return all(size in (1, dim) for size, dim in zip(constant_shape, behind, strict=True))


def _exact_pair(ratio: float, low: DType) -> tuple[float, float]:
    """Return m from 1 to 2 and a, which a type holds, such that a / m is nearest to a ratio."""
    digits = round(1 / low.epsilon)
    m = np.arange(digits, 2 * digits, dtype=np.float64)
    wanted = m * abs(ratio)
    unit = np.exp2(np.floor(np.log2(wanted))) / digits
    a = np.rint(wanted / unit) * unit
    best = int(np.abs(a / wanted - 1).argmin())
    return float(m[best]) / digits, float(np.copysign(a[best], ratio)) / digits


def _weights(conv: ir.Node | None) -> tuple[Array, Array] | None:
    """Return the weights and the bias of a Conv; None if they are not constants."""
    if conv is None:
        return None
    w, has_bias = constant(conv.inputs[1]), len(conv.inputs) > 2 and conv.inputs[2] is not None
    b = constant(conv.inputs[2]) if has_bias else np.zeros(0 if w is None else len(w))
    return None if w is None or b is None else (w, b)


def _give(conv: ir.Node, w: Array, b: Array) -> None:
    """Give a Conv other weights and another bias, of its own."""
    inputs = [conv.inputs[0], stored(conv, w, f"{conv.outputs[0].name}:weights")]
    if b.any() or len(conv.inputs) > 2:
        inputs.append(stored(conv, b, f"{conv.outputs[0].name}:bias"))
    set_inputs(conv, *inputs)


def _sums(w: Array) -> Array:
    return w.reshape(len(w), -1).sum(axis=1)


def _convolutions(value: ir.Value) -> list[ir.Node]:
    """Return the convolutions that read a value, if all that does are such, with constants."""
    uses = [] if value.is_graph_output() else list(value.uses())
    fits = all(
        (u.node.op_type, u.node.domain, u.idx) == ("Conv", "", 0)
        and u.node.graph is value.graph
        and _weights(u.node) is not None
        for u in uses
    )
    return [use.node for use in uses] if fits else []


def _pads(conv: ir.Node) -> bool:
    automatic = conv.attributes.get_string("auto_pad", "NOTSET")
    return automatic not in ("NOTSET", "VALID") or any(conv.attributes.get_ints("pads", ()))


def _only_maker(value: ir.Value | None, op_type: str) -> ir.Node | None:
    """Return what makes a value, if it is of an operator and one node alone reads the value."""
    node = None if value is None or value.is_graph_output() else value.producer()
    fits = node is not None and (node.domain, node.op_type) == ("", op_type)
    return node if fits and value is not None and len(value.uses()) == 1 else None
