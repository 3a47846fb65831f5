"""What is multiplied with coordinates stays float32 in front of whatever looks something up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pass_marks import context_of, marks_of, model_of

from amp_rewrite.rewriting.paint.passes.keep_coordinates import keep_coordinates

GRID = np.stack(np.meshgrid(np.linspace(-1, 1, 8), np.linspace(-1, 1, 8)), -1).reshape(64, 2)
PLACES = np.concatenate([GRID, np.ones((64, 1))], 1)
RNG = np.random.default_rng(0)
CONSTANTS: dict[str, Any] = {
    "w6": RNG.normal(0, 0.02, (16, 6)),
    "w20": RNG.normal(0, 0.02, (16, 20)),
    "theta": np.array([1.0, 0, 0, 1, 0, 0]),
    "p23": np.array([2, 3]),
    "p32": np.array([3, 2]),
    "p123": np.array([1, 2, 3]),
    "p102": np.array([10, 2]),
    "places": PLACES,
    "turned": PLACES.T,
    "basis": RNG.normal(0, 1, (64, 10)),
    "inverse": RNG.normal(0, 1, (10, 10)),
    "shape": np.array([1, 8, 8, 2]),
    "sizes": np.array([1, 1, 8, 8]),
    "xs": GRID[None, :, 0],
    "ys": GRID[None, :, 1],
    "last": np.array([2]),
    "base": GRID.reshape(1, 8, 8, 2),
    "half": np.array([4.0, 4.0]),
    "kernel": RNG.normal(0, 1, (2, 1, 3, 3)),
    "deep": RNG.normal(0, 1, (1, 1, 3, 3)),
    "wide": np.array(16382.0),
    "half_": np.array(8.0),
    "roi": np.array([0.0, 0, 0, 0, 1, 1, 1, 1]),
    "w8": RNG.normal(0, 0.1, (16, 8)),
    "flat": np.array([-1]),
    "p1": np.array([64]),
    "pick": np.array([0]),
}
GRAPH = (
    "<ir_version: 9, opset_import: ['' : 20]> g (float[1,16] f, float[1,1,8,8] x) => (float[N] y)"
)
HEAD = "h = MatMul(f, w6) b = Add(h, theta)"
SAMPLE = "g = Reshape(c, shape) y = GridSample(x, g)"

KEPT = {
    "places first": (f"{HEAD} t = Reshape(b, p32) c = MatMul(places, t) {SAMPLE}", "hbtcg"),
    "places in a Gemm": (
        f"{HEAD} t = Reshape(b, p23) c = Gemm<transB = 1>(places, t) {SAMPLE}",
        "hbtcg",
    ),
    "places second": (
        f"{HEAD} t = Reshape(b, p123) e = MatMul(t, turned) "
        f"c = Transpose<perm = [0, 2, 1]>(e) {SAMPLE}",
        "hbtecg",
    ),
    "a bias": (
        f"h = Gemm(f, w6, theta) t = Reshape(h, p32) c = MatMul(places, t) {SAMPLE}",
        "htcg",
    ),
    "an affine grid": (
        "h = Gemm(f, w6, theta) t = Reshape(h, p123) g = AffineGrid(t, sizes) y = GridSample(x, g)",
        "htg",
    ),
    "one by one": (
        f"{HEAD} k, l, m, n, o, p = Split<axis = 1, num_outputs = 6>(b) q = Mul(k, xs) "
        f"r = Mul(l, ys) s = Add(q, r) t = Unsqueeze(s, last) u = Concat<axis = 2>(t, t) "
        "g = Reshape(u, shape) y = GridSample(x, g)",
        "hbkqrstug",
    ),
    "a homography": (
        f"{HEAD} t = Reshape(b, p32) e = MatMul(places, t) d = Reciprocal(e) c = Mul(e, d) "
        + SAMPLE,
        "hbtedcg",
    ),
    "a spline": (
        "h = Gemm(f, w20) t = Reshape(h, p102) q = MatMul(inverse, t) c = MatMul(basis, q) "
        + SAMPLE,
        "htqcg",
    ),
    "a spline by Einsum": (
        'h = Gemm(f, w20) t = Reshape(h, p102) q = Einsum<equation = "kn,nd->kd">(inverse, t) '
        f'c = Einsum<equation = "pk,kd->pd">(basis, q) {SAMPLE}',
        "htqcg",
    ),
    "a region": (
        "h = Gemm(f, w8) r = Reshape(h, flat) y = Resize<coordinate_transformation_mode = "
        '"tf_crop_and_resize">(x, r, , sizes)',
        "hr",
    ),
    "a wide row": (
        "h = MatMul(f, w6) s = Sigmoid(h) m = Mul(s, wide) e = Floor(m) i = Cast<to = 7>(e) "
        "y = GatherElements<axis = 1>(f, i)",
        "hsme",
    ),
    "indices": (
        f"{HEAD} t = Reshape(b, p32) c = MatMul(places, t) m = Mul(c, half) e = Floor(m) "
        "i = Cast<to = 7>(e) y = GatherND(x, i)",
        "hbtcme",
    ),
}


def kept(body: str, graph: str = GRAPH) -> set[str]:
    """Return what nodes make that is kept."""
    context = context_of(model_of(f"{graph.replace(chr(39), chr(34))} {{ {body} }}", **CONSTANTS))
    return {*marks_of(keep_coordinates, context)}


@pytest.mark.parametrize("name", KEPT)
def test_both_operands_of_a_product_with_places_are_kept(name: str) -> None:
    body, expected = KEPT[name]
    assert kept(body) == {*expected}


@pytest.mark.parametrize("opset", [16, 17, 23])
def test_the_opset_does_not_matter(opset: int) -> None:
    graph = GRAPH.replace("20", str(opset))
    assert kept(KEPT["places first"][0], graph) == {*"hbtcg"}


def test_branches_and_loops_are_the_same() -> None:
    body, expected = KEPT["places first"]
    inner = body.replace("y = ", "o = ")
    graph = GRAPH.replace("float[1,16] f", "float[1,16] f, bool c0, int64 n")
    branch = (
        f"y = If(c0) <then_branch = t0 () => (float[1,1,8,8] o) {{ {inner} }}, "
        "else_branch = e0 () => (float[1,1,8,8] o2) { o2 = Identity(x) }>"
    )
    assert kept(branch, graph) == {*expected}
    turn = (
        "y = Loop(n, c0, x) <body = b0 (int64 i0, bool c1, float[1,1,8,8] s0) => "
        f"(bool c2, float[1,1,8,8] o) {{ c2 = Identity(c1) {inner} }}>"
    )
    assert kept(turn, graph) == {*expected}


def test_results_of_branches_and_loops_are_followed() -> None:
    graph = GRAPH.replace("float[1,16] f", "float[1,16] f, bool c0, int64 n")
    tail = f"t = Reshape(u, p32) c = MatMul(places, t) {SAMPLE}"
    branch = (
        "h = MatMul(f, w6) u = If(c0) <then_branch = t0 () => (float[1,6] o) { o = Add(h, theta) }"
        f", else_branch = e0 () => (float[1,6] o2) {{ o2 = Sub(h, theta) }}> {tail}"
    )
    assert kept(branch, graph) == {"h", "u", "o", "o2", *"tcg"}
    turn = (
        "h = MatMul(f, w6) u = Loop(n, c0, h) <body = b0 (int64 i0, bool c1, float[1,6] s) => "
        f"(bool c2, float[1,6] o) {{ c2 = Identity(c1) o = Add(s, theta) }}> {tail}"
    )
    assert kept(turn, graph) == {"u", "o", *"tcg"}


@pytest.mark.parametrize(
    "body",
    [
        "h = Conv<pads = [1,1,1,1]>(x, kernel) t = Transpose<perm = [0, 2, 3, 1]>(h) "
        "g = Add(t, base) y = GridSample(x, g)",
        "h = Conv<pads = [1,1,1,1]>(x, deep) y = GridSample(h, base)",
        "h = MatMul(f, w6) s = Softmax(h) y = MatMul(s, s)",
        "h = MatMul(f, w6) s = Sigmoid(h) m = Mul(s, half_) e = Floor(m) i = Cast<to = 7>(e) "
        "y = GatherElements<axis = 1>(f, i)",
        "y = Resize(x, , , sizes)",
        "y = Gather(x, pick)",
    ],
)
def test_layers_whose_result_is_only_added_to_places_stay_low(body: str) -> None:
    assert not kept(body)
