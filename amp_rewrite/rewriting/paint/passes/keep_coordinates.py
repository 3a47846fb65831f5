"""Factors of coordinates stay float32 where something is looked up at a place.

keep_demands.py keeps places; what they are multiplied with must be as exact: theta of an affine
grid is near 1, so that float16 moves a picture of 512 pixels by 0.1 of a pixel. The demand goes
through both operands of products, and ends with the layer that gives the data.

Evidence: affine grid, homography and thin plate spline in front of GridSample, float16: the picture
is off by 3.7, 5.8 and 48 % of its norm without the pass, by 0.3 % or less with it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.traits import TABLE, Trait, having
from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Reason, Stage, keep
from amp_rewrite.rewriting.paint.match import ADDED, FARTHEST, PRODUCTS, SIGNED, Worklist

_AXES = 4
"""The most coordinates of a point: x, y, z and 1."""

_PIXEL = 0.1
"""How far rounding may move a point."""

_PLACES = {name: row.coordinates for name, row in TABLE.items() if row.coordinates} | {
    "Resize": (1,),
    "com.microsoft::CropAndResize": (1,),
}
# operators: those that multiply coordinates by sizes themselves.
_SCALING = ("AffineGrid", "Resize", "com.microsoft::CropAndResize")
# operators: those that look up, or put, something at indices; by which input.
_INDEXED: Mapping[str, tuple[int, ...]] = dict.fromkeys(
    ("Gather", "GatherElements", "GatherND", "ScatterND"), (1,)
)

# operators: the arithmetic of coordinates.
_ARITHMETIC = (
    SIGNED
    | ADDED
    | having(Trait.SUMS_UP, Trait.HANDS_ON)
    | {"Ceil", "Clip", "Div", "Floor", "Max", "Min", "Mod", "Mul", "Pow", "Reciprocal", "Round"}
) - {"GridSample", "MaxRoiPool", "RoiAlign"}


@keep("keep-coordinates", Reason.DEMAND, Stage.GIVEN, 35)
def keep_coordinates(m: Match, _: Ask) -> Kept:
    """Mark what computes coordinates, through both operands of products, up to a layer."""
    for node in (n for n in m.nodes(*_PLACES, *_INDEXED) if not m.is_part(n)):
        ports = _PLACES.get(m.op(node), ()) or _INDEXED[m.op(node)]
        for value in (v for k, v in enumerate(m.read(node)) if k in ports and v != ABSENT):
            starts = _floats(m, value) if m.op(node) in _INDEXED else [value]
            scaled = m.is_a(node, *_SCALING)
            behind = _behind(m, starts, scaled)
            if any(m.factors(n) or m.has(n, Trait.SUBGRAPHS) for n in behind):
                vertices = [v for own in behind.values() for v in own]
                yield Keep(f"coordinates of {m.name(node)}", (), vertices)


def _floats(m: Match, indices: int) -> list[int]:
    """Return the float32 values of which indices are made by a Cast."""
    todo, floats = Worklist(indices, most=FARTHEST), list[int]()
    for value in todo:
        read = [] if m.is_fixed(value) else m.read(m.maker(value))
        floats += [v for v in read if v != ABSENT and m.graph.is_float32(v)]
        todo.add(v for v in read if v != ABSENT and not m.graph.is_float32(v))
    return floats


def _behind(m: Match, starts: list[int], scaled: bool) -> dict[int, list[int]]:
    """Return the nodes that compute coordinates, with their vertices, by whatever graphs inside."""
    found: dict[int, list[int]] = {}
    todo = Worklist(*((value, scaled) for value in starts), most=FARTHEST)
    for value, multiplied in todo:
        node = ABSENT if m.is_fixed(value) else m.maker(value)
        if m.op(node) in PRODUCTS:
            maps = _maps(m, node)
            if maps or multiplied or len(m.flat.shape(m.made(node)) or ()) == 2:
                found[node] = [*m.graph.vertices_of(node)]
            todo.add((v, True) for v in m.data(node) if maps)
        elif m.has(node, Trait.SUBGRAPHS):
            found.setdefault(node, []).append(m.graph.source[value])
            todo.add((v, multiplied) for v in m.handed(value))
        elif multiplied and m.is_a(node, "Sigmoid", "Tanh"):
            found[node] = [*m.graph.vertices_of(node)]
            todo.add((v, True) for v in m.data(node))
        elif m.op(node) in _ARITHMETIC:
            found[node] = [*m.graph.vertices_of(node)]
            meets = multiplied or (m.is_a(node, "Mul", "Div") and not _scales(m, node))
            todo.add((v, meets) for v in m.data(node))
    return found


def _scales(m: Match, node: int) -> bool:
    """Tell whether a node only scales each coordinate by a constant, which is not large."""
    factor = m.factor(node)
    numbers = None if factor is None else m.numbers(factor[1])
    if numbers is None or numbers.size > _AXES:
        return False
    return m.is_a(node, "Div") or bool(np.abs(numbers).max() * m.low.epsilon / 2 <= _PIXEL)


def _maps(m: Match, node: int) -> bool:
    """Tell whether a product maps points to points, rather than features to points."""
    factors = m.factors(node)
    fixed = [m.is_fixed(v) for v in factors]
    if not any(fixed) or all(fixed) or len(factors) < 2:
        return not any(fixed)
    shape = m.flat.shape(factors[fixed.index(False)])
    if (
        m.has(node, Trait.NOT_BROADCAST)
        or (m.is_a(node, "Gemm") and fixed[1])
        or not shape
        or len(shape) < 2
    ):
        return False
    if fixed[0]:
        return shape[-1] is not None and shape[-1] <= _AXES
    return len(shape) > 2 and shape[-2] is not None and 1 < shape[-2] <= _AXES
