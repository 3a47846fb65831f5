"""Grids and ramps that an exporter folded into constants are places, as those that Range makes."""

from __future__ import annotations

import numpy as np
import pytest
from named_nodes import WAYS, low, model, reasons
from rewrite_text import assert_close, rewritten

WIDTH = 64
COLUMNS, ROWS = np.meshgrid(np.linspace(-1, 1, WIDTH), np.linspace(-1, 1, 8))
GRID = np.stack([COLUMNS, ROWS])[None].astype(np.float32)
RNG = np.random.default_rng(0)


HEAD = "g (float[1,8,8,64] x) => (float[1,8,8,64] y) { [layer] flow = Conv<pads = [1,1,1,1]>(x, w) "
LAYER = {"w": RNG.standard_normal((2, 8, 3, 3)) / 20}
SPELLINGS = {
    "initializer": ("", {"grid": GRID}),
    "Constant": (
        "grid = Constant<value = float[1,1,1,64] {"
        + ", ".join(f"{x:.7f}" for x in np.linspace(-1, 1, WIDTH))
        + "}>()",
        {},
    ),
    "Expand": (
        "grid = Expand(row, shape)",
        {"row": GRID[:, :, :1], "shape": np.array([1, 2, 8, 64])},
    ),
    "Tile": ("grid = Tile(row, times)", {"row": GRID[:, :, :1], "times": np.array([1, 1, 8, 1])}),
    "Concat": ("grid = Concat<axis = 1>(a, b)", {"a": GRID[:, :1], "b": GRID[:, 1:]}),
    "Slice": (
        "grid = Slice(wide, start, end, axis)",
        {
            "wide": np.concatenate([GRID, GRID], 1),
            "start": np.array([0]),
            "end": np.array([2]),
            "axis": np.array([1]),
        },
    ),
    "pixels": (
        "shifted = Mul(pixels, step) grid = Sub(shifted, one)",
        {"pixels": (GRID + 1) * 31.5, "step": 2 / 63, "one": 1.0},
    ),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_grid_in_front_of_grid_sample_stays_float32(spelling: str, way: str) -> None:
    text, constants = SPELLINGS[spelling]
    source = model(
        f"""{HEAD} {text} [moved] p = Add(flow, grid) [turned] t = Transpose<perm=[0,2,3,1]>(p)
        y = GridSample<mode="linear", padding_mode="border">(x, t) }}""",
        **LAYER,
        **constants,
    )
    found = reasons(rewritten(source, **WAYS[way]))
    assert (found["moved"], found["turned"]) == ("demand", "demand")
    assert found["layer"] == "allow-list"


JUMPS = {
    "Floor": "j = Floor(p)",
    "Mod": "j = Mod<fmod = 1>(p, one)",
    "indices": "j = Cast<to = 7>(p)",
    "Cos": "[angle] a = Mul(p, many) j = Cos(a)",
    "comparison": "j = Greater(p, one)",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("jump", JUMPS)
def test_a_ramp_in_front_of_a_jump_or_angle_stays_float32(jump: str, way: str) -> None:
    source = model(
        f"{HEAD} [moved] p = Add(flow, ramp) {JUMPS[jump]} q = Cast<to = 1>(j) "
        "[behind] y = Conv(q, v) }",
        **LAYER,
        ramp=np.arange(WIDTH, dtype=np.float64) * 30,
        one=7.0,
        many=100.0,
        v=RNG.standard_normal((8, 2, 1, 1)),
    )
    result = rewritten(source, **WAYS[way])
    found = reasons(result)
    assert (found["layer"], found["moved"]) == ("allow-list", "demand")
    operators = {n.op for n in result.report.nodes if n.name in low(result)}
    assert operators <= {"Cast", "Conv", "Transpose", "Identity"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("product", ["p = Mul(f, t)", "p = MatMul(f, t)", "p = Gemm(f, t)"])
def test_an_oscillator_keeps_its_phase(product: str, way: str) -> None:
    source = model(
        f"""g (float[1,16] x) => (float[1,4] y) {{ [layer] f = MatMul(x, w) [phase] {product}
        q = Add(p, offset) s = Sin(q) [behind] y = MatMul(s, v) }}""",
        w=np.full((16, 1), 16.0),
        t=np.arange(2400)[None] * (2 * np.pi / 2400),
        offset=0.25,
        v=RNG.standard_normal((2400, 4)) / 50,
    )
    result = rewritten(source, **WAYS[way])
    found = reasons(result)
    assert found["phase"] == "demand"
    assert found["layer"] == "allow-list"
    assert_close(result, source, {"x": np.ones((1, 16), np.float32)})


@pytest.mark.parametrize("way", WAYS)
def test_an_affine_grid_of_constants_stays_float32(way: str) -> None:
    places = np.concatenate([GRID.reshape(2, -1), np.ones((1, 8 * WIDTH))])
    source = model(
        """g (float[1,6] x) => (float[1,2,512] z, float[1,6] s)
        { [layer] theta = MatMul(x, w) m = Reshape(theta, shape) [moved] p = MatMul(m, places)
          f = Floor(p) z = Identity(f) s = MatMul(theta, w) }""",
        w=np.eye(6),
        shape=np.array([1, 2, 3]),
        places=places,
    )
    found = reasons(rewritten(source, **WAYS[way]))
    assert found["moved"] == "demand"
    assert found["layer"] == "allow-list"


@pytest.mark.parametrize("way", WAYS)
def test_what_remains_of_two_places_stays_float32(way: str) -> None:
    source = model(
        f"{HEAD} [moved] p = Add(flow, pixels) [again] more = Conv<pads = [1,1,1,1]>(p, u) "
        "[next] q = Add(p, more) [left] d = Sub(q, pixels) [behind] y = Conv(d, v) }",
        **LAYER,
        pixels=(GRID + 1) * 480,
        u=RNG.standard_normal((2, 2, 3, 3)) / 1000,
        v=RNG.standard_normal((8, 2, 1, 1)),
    )
    found = reasons(rewritten(source, **WAYS[way]))
    assert [found[name] for name in ("moved", "next", "left")] == ["demand"] * 3
    assert {found[name] for name in ("layer", "again", "behind")} == {"allow-list"}


LEFT_ALONE = {
    "an embedding of places, normalised": (
        "a = Add(h, table) n = LayerNormalization(a, ones) s = Sin(n)",
        {"table": np.sin(np.arange(64)[:, None] / 10 ** (np.arange(64) / 16))},
    ),
    "a bias": ("a = Add(h, bias) s = Sin(a)", {"bias": RNG.standard_normal(64)}),
    "a factor of each channel": ("a = Mul(h, f) s = Sin(a)", {"f": RNG.random(64) + 0.5}),
    "a mean": ("a = Add(h, ramp) m = ReduceMean(a, last) s = Sub(a, m)", {"ramp": np.arange(64.0)}),
    "a phase of less than a turn": (
        "b = Tanh(h) a = Mul(b, ramp) s = Sin(a)",
        {"ramp": np.arange(64.0) / 64},
    ),
    "a function's result, times a factor of each channel": (
        "b = Sigmoid(h) a = Mul(b, f) s = Sin(a)",
        {"f": RNG.random(64) + 9},
    ),
    "a ramp that nothing demands": ("s = Add(h, ramp)", {"ramp": np.arange(64.0)}),
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_what_is_left_alone(case: str) -> None:
    text, constants = LEFT_ALONE[case]
    source = model(
        f"""g (float[64,64] x) => (float[64,64] y) {{ h = MatMul(x, w) {text}
        y = MatMul(s, w) }}""",
        w=np.eye(64),
        ones=np.ones(64),
        last=np.array([-1]),
        **constants,
    )
    assert "demand" not in reasons(rewritten(source, target="cuda")).values()
