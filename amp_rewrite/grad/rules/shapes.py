"""Gradients of operators that copy every element; g is the gradient of the output y."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.errors import GradientError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.rule import Gradients, Rules
from amp_rewrite.grad.rules.arithmetic import Received, extra_output, known, operands
from amp_rewrite.graph.names import place


def identity(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x: g."""
    return [gs[0]]


def cast(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x in another type: g in the type of x."""
    return [b.cast_like(known(gs[0]), operands(node)[0])]


def reshape(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x in another shape (Reshape, Squeeze, Unsqueeze, Flatten): g in the shape of x."""
    return [b.reshape_like(known(gs[0]), operands(node)[0])]


def transpose(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x with axes permuted by p: g permuted by the inverse of p."""
    perm = list(node.attributes.get_ints("perm", ()))
    if not perm:
        return [b.op("Transpose", known(gs[0]))]
    inverse = sorted(range(len(perm)), key=perm.__getitem__)
    return [b.transpose(known(gs[0]), inverse)]


def expand(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x broadcast to a shape: g, summed by the walk."""
    return [gs[0]]


def tile(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x repeated r_k times along axis k: g with each axis split into (r_k, n_k), summed."""
    g, (x, repeats) = known(gs[0]), operands(node)
    column = b.constant([1])
    pairs = b.concat(
        [b.unsqueeze(b.cast(v, ir.DataType.INT64), column) for v in (repeats, b.shape(x))], 1
    )
    split = b.reshape_exactly(g, b.reshape(pairs, [-1]))
    rank = b.rank(x)
    if rank is None:
        last = b.op("Size", pairs)
        axes: ir.Value | list[int] = b.range(0, last, 2)
    else:
        axes = list(range(0, 2 * rank, 2))
    return [b.shaped_like(b.reduce_sum(split, axes, keepdims=False), x)]


def concat(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = the x_i concatenated: g split into their lengths."""
    g, axis, inputs = known(gs[0]), node.attributes.get_int("axis", 0), operands(node)
    if len(inputs) == 1:
        return [g]
    static = [n for x in inputs if (n := (b.dims(x) or {axis: None})[axis]) is not None]
    if len(static) == len(inputs):
        whole: ir.Value | list[int] = static
    else:
        whole = b.concat([b.dim(x, axis) for x in inputs], 0)
    pieces = b.split(g, whole, axis, len(inputs))
    return [b.shaped_like(piece, x) for piece, x in zip(pieces, inputs, strict=True)]


def split(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """Y_i = pieces of x: their gradients concatenated, zeros where there is none."""
    pieces = [b.zeros_like(y) if g is None else g for y, g in zip(node.outputs, gs, strict=True)]
    joined = b.concat(pieces, node.attributes.get_int("axis", 0))
    return [b.shaped_like(joined, operands(node)[0])]


def dropout(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = x m / (1 - r) in training, m a random mask: g / (1 - r) where m else 0; otherwise g.

    The mask is an output of the node, which gets one if it has none.
    """
    g = known(gs[0])
    _, ratio, training = (*node.inputs, None, None)[:3]
    mode = b.ints(training) if training is not None else [0]
    if mode == [0]:
        return [g]
    scale = _dropout_scale(b, g, ratio)
    if mode is None and training is not None:
        scale = b.where(training, scale, b.operand(1, g))
    mask = extra_output(b, node, 1, ir.DataType.BOOL, b.symbolic_dims(node.outputs[0]))
    return [b.where(mask, b.mul(g, scale), 0)]


def _dropout_scale(b: Builder, g: ir.Value, ratio: ir.Value | None) -> ir.Value:
    """Return 1 / (1 - r); r is 0.5 unless given."""
    rate = b.array(ratio)
    if ratio is not None and rate is None:
        return b.reciprocal(b.sub(1, b.cast_like(ratio, g)))
    left = 0.5 if rate is None else 1 - float(rate.reshape(-1)[0])
    # With r = 1 nothing is kept, so that the scale does not matter.
    return b.constant(1 / left if left else 0.0, b.type_of(g))


def depth_to_space(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = blocks of channels laid out in space: SpaceToDepth of g, its channels in x's order."""
    g, x = known(gs[0]), operands(node)[0]
    size = node.attributes.get_int("blocksize", 1)
    folded = b.op("SpaceToDepth", g, blocksize=size)
    if node.attributes.get_string("mode", "DCR") == "DCR":
        return [folded]
    # SpaceToDepth puts the block's position before the channel, mode CRD after it.
    channels = b.dim(g, 1)
    apart = b.concat([b.constant([0, size * size]), channels, b.constant([-1])], 0)
    swapped = b.transpose(b.reshape(folded, apart), [0, 2, 1, 3])
    return [b.reshape_like(swapped, x)]


def space_to_depth(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = blocks of space laid out as channels: DepthToSpace of g."""
    size = node.attributes.get_int("blocksize", 1)
    return [b.op("DepthToSpace", known(gs[0]), blocksize=size)]


def trilu(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = a triangle of x: the same triangle of g."""
    upper = node.attributes.get_int("upper", 1)
    return [b.op("Trilu", known(gs[0]), *node.inputs[1:], upper=upper)]


def reverse_sequence(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """y = the first s_i elements of x in reverse order: the same of g."""
    batch = node.attributes.get_int("batch_axis", 1)
    time = node.attributes.get_int("time_axis", 0)
    lengths = operands(node)[1]
    by_x = b.op("ReverseSequence", known(gs[0]), lengths, batch_axis=batch, time_axis=time)
    return [by_x]


def sequence(node: ir.Node, gs: Received, b: Builder) -> Gradients:
    """Refuse values that are sequences.

    Raises:
        GradientError: Always.
    """
    raise GradientError(
        "sequences of tensors have no gradient",
        where=place(node),
        remedy="use Split and Concat instead of sequences when exporting the model",
    )


RULES: Rules = {
    "Cast": cast,
    "CastLike": cast,
    "Concat": concat,
    "ConcatFromSequence": sequence,
    "DepthToSpace": depth_to_space,
    "Dropout": dropout,
    "Expand": expand,
    "Flatten": reshape,
    "Identity": identity,
    "Reshape": reshape,
    "ReverseSequence": reverse_sequence,
    "SequenceAt": sequence,
    "SequenceConstruct": sequence,
    "SequenceInsert": sequence,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "SplitToSequence": sequence,
    "Squeeze": reshape,
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": trilu,
    "Unsqueeze": reshape,
}
