"""Formulas of operators that read an image between its elements: GridSample, RoiAlign.

The image is (N, C, *lengths). A place has one coordinate per axis, in elements: 0 is the centre of
the first one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.rules.arithmetic import operands, rank_of
from amp_rewrite.grad.rules.formula import Formulas, Outputs, count, refuse, shape_of

_BEND = -0.75  # of the cubic: R. Keys, "Cubic Convolution Interpolation", 1981, with PyTorch's a
_TAPS: dict[str, tuple[list[int], list[list[float]]]] = {
    "nearest": ([0], [[1]]),
    "linear": ([0, 1], [[-1, 1], [1, 0]]),
    "cubic": (
        [-1, 0, 1, 2],
        [
            [_BEND, _BEND + 2, -_BEND - 2, -_BEND],
            [-2 * _BEND, -_BEND - 3, 2 * _BEND + 3, _BEND],
            [_BEND, 0, -_BEND, 0],
            [0, 1, 0, 0],
        ],
    ),
}
"""Mode -> which elements beside the one before a place are read, and their weights: polynomials of
the distance from that to the place, the highest power first."""
_TAPS["bilinear"], _TAPS["bicubic"] = _TAPS["linear"], _TAPS["cubic"]


def grid_sample(node: ir.Node, b: Builder) -> Outputs:
    """y = x at the places of a grid, (N, *positions, r), from -1 to 1 along each of r axes."""
    x, grid = operands(node)
    r, attributes = rank_of(node, b, x) - 2, node.attributes
    aligned = bool(attributes.get_int("align_corners", 0))
    places: list[ir.Value] = []
    for axis in range(r):
        length = b.cast_like(b.dim(x, 2 + axis), x)
        place = b.add(b.cast_like(b.gather(grid, b.constant(r - 1 - axis), r + 1), x), 1)
        scaled = b.mul(place, b.mul(b.sub(length, 1) if aligned else length, 0.5))
        places.append(scaled if aligned else b.sub(scaled, 0.5))
    padding = attributes.get_string("padding_mode", "zeros")
    if padding == "reflection":
        padding = "aligned" if aligned else "half"
    y = _read(b, x, places, attributes.get_string("mode", "linear"), padding)
    return [b.transpose(y, [0, r + 1, *range(1, r + 1)])]


def _read(b: Builder, x: ir.Value, places: Sequence[ir.Value], mode: str, padding: str) -> ir.Value:
    """Return x at places, (N, *positions) along each axis: (N, *positions, C).

    Outside of x is 0 for the padding "zeros", the nearest element for "border", and x reflected at
    its last elements for "aligned", half an element after them for "half".
    """
    offsets, weights = _TAPS[mode]
    r = len(places)
    rank = b.rank(places[0]) or 0
    total = flat = None
    for axis, coordinate in enumerate(places):
        length = b.dim(x, 2 + axis)
        first = b.op("Round" if mode == "nearest" else "Floor", coordinate)
        rest = b.unsqueeze(b.sub(coordinate, first), [rank])
        at = b.add(b.cast(b.unsqueeze(first, [rank]), ir.DataType.INT64), b.constant(offsets))
        rows = np.array(weights, b.type_of(x).numpy()).reshape(len(weights), *[1] * rank, -1)
        weight = b.constant(rows[0])
        for row in rows[1:]:
            weight = b.add(b.mul(weight, rest), b.constant(row))
        last = b.sub(length, 1)
        if padding == "zeros":
            inside = b.logical_and(b.greater_or_equal(at, 0), b.less_or_equal(at, last))
            weight = b.mul(weight, b.cast_like(inside, weight))
        elif padding != "border":
            twice = b.mul(last, 2) if padding == "aligned" else b.add(b.mul(last, 2), 1)
            period = b.maximum(twice, 1) if padding == "aligned" else b.add(twice, 1)
            at = b.op("Mod", at, period)
            at = b.minimum(at, b.sub(twice, at))
        at = b.minimum(b.maximum(at, 0), last)
        # One axis of taps for each axis of x.
        at, weight = (
            b.unsqueeze(v, [rank + k for k in range(r) if k != axis]) for v in (at, weight)
        )
        flat = at if flat is None else b.add(b.mul(flat, length), at)
        total = weight if total is None else b.mul(total, weight)
    assert flat is not None, "an image has an axis"
    assert total is not None, "as above"
    lined = b.transpose(b.reshape(x, [0, 0, -1]), [0, 2, 1])
    elements = b.op("GatherND", lined, b.unsqueeze(flat, [rank + r]), batch_dims=1)
    weighted = b.mul(elements, b.unsqueeze(total, [rank + r]))
    return b.reduce_sum(weighted, range(rank, rank + r), keepdims=False)


def roi_align(node: ir.Node, b: Builder) -> Outputs:
    """y = A x B^T for each region, A and B the mean weights of the rows and the columns of a bin.

    Both are linear interpolations: an element has the weight max(0, 1 - distance) at a place.
    """
    x, rois, batch = operands(node)
    attributes = node.attributes
    if attributes.get_string("mode", "avg") != "avg":
        raise refuse(node, "a RoiAlign of maxima")
    half = attributes.get_string("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    corners = b.mul(rois, attributes.get_float("spatial_scale", 1.0))
    corners = b.sub(corners, 0.5) if half else corners
    matrices: list[ir.Value] = []
    for axis, bins in enumerate(("output_height", "output_width")):
        start, end = (b.gather(corners, b.constant([1 - axis + k]), 1) for k in (0, 2))
        extent = b.sub(end, start) if half else b.maximum(b.sub(end, start), 1)
        size = attributes.get_int(bins, 1)
        ratio = attributes.get_int("sampling_ratio", 0)
        matrices.append(_bins(b, start, b.div(extent, size), size, ratio, b.dim(x, 2 + axis)))
    images = count(b, b.dim(x, 0))
    chosen = b.cast_like(b.equal(b.unsqueeze(b.cast(batch, ir.DataType.INT64), [1]), images), x)
    # Two products, since Einsum of ONNX Runtime 1.32.0 divides by zero where there is no region.
    of_image = b.mul(b.unsqueeze(matrices[0], [2]), b.unsqueeze(chosen, [1, 3]))
    (regions, bins), (channels, width) = (
        [b.dim(v, k) for k in at] for v, at in ((matrices[0], (0, 1)), (x, (1, 3)))
    )
    inner = b.mul(b.dim(x, 0), b.dim(x, 2))
    lined = b.reshape_exactly(
        b.transpose(x, [0, 2, 1, 3]), shape_of(b, inner, b.mul(channels, width))
    )
    rows = b.matmul(b.reshape_exactly(of_image, shape_of(b, regions, bins, inner)), lined)
    rows = b.reshape_exactly(rows, shape_of(b, regions, bins, channels, width))
    y = b.matmul(rows, b.unsqueeze(b.transpose(matrices[1], [0, 2, 1]), [1]))
    return [b.transpose(y, [0, 2, 1, 3])]


def _bins(
    b: Builder, start: ir.Value, extent: ir.Value, bins: int, ratio: int, length: ir.Value
) -> ir.Value:
    """Return the mean weight of each element in each bin: (regions, bins, elements).

    The first bin's start and the extent of a bin are (regions, 1). `ratio` is how many places of a
    bin are read; 0: as many as it has elements, at least one.
    """
    dtype = b.type_of(start)
    if ratio:
        points, most = b.constant(ratio, dtype), b.constant([ratio])
    else:
        points = b.op("Ceil", extent)
        all_points = b.concat([b.reshape(points, [-1]), b.constant([1], dtype)], 0)
        most = b.cast(b.op("ReduceMax", all_points, keepdims=1), ir.DataType.INT64)
        points = b.unsqueeze(points, [2])
    number = b.cast(count(b, most), dtype)
    inside = b.less(number, points)
    step = b.div(b.add(number, 0.5), b.maximum(points, 1))
    first = b.unsqueeze(b.constant(np.arange(bins, dtype=dtype.numpy())), [1])
    start, extent = (b.unsqueeze(v, [2]) for v in (start, extent))
    place = b.add(start, b.mul(b.add(first, step), extent))  # (regions, bins, places)
    end = b.cast(length, dtype)
    read = b.logical_and(b.greater_or_equal(place, -1), b.less_or_equal(place, end))
    share = b.div(b.cast(b.logical_and(read, inside), dtype), b.maximum(points, 1))
    place = b.minimum(b.maximum(place, 0), b.sub(end, 1))
    distance = b.abs(b.sub(b.unsqueeze(place, [3]), b.cast(count(b, length), dtype)))
    weight = b.mul(b.maximum(b.sub(1, distance), 0), b.unsqueeze(share, [3]))
    return b.reduce_sum(weight, [2], keepdims=False)


FORMULAS: Formulas = {
    "GridSample": grid_sample,
    "RoiAlign": roi_align,
}
