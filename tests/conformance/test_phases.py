"""The phase of a spectrum is float32 with its spectrum, and silence has one."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from named_nodes import WAYS, low, model
from rewrite_text import rewritten

import amp_rewrite as amp

RNG = np.random.default_rng(0)
BINS, FRAME = np.arange(17)[:, None], np.arange(32)[None]
ANGLES = BINS * FRAME * 2 * np.pi / 32
NUMBERS = {
    "c": (np.cos(ANGLES) * np.hanning(33)[:32])[:, None],
    "s": (-np.sin(ANGLES) * np.hanning(33)[:32])[:, None],
    "ct": np.cos(ANGLES).T,
    "st": -np.sin(ANGLES).T,
    "zero": 0.0,
    "half": 3.1415927,
    "tiny": 1e-9,
    "minus": -1.0,
    "last": np.array([2]),
    "v": RNG.standard_normal((8, 17, 3)) / 5,
    "vt": RNG.standard_normal((17, 8)) / 5,
}
QUADRANTS = """neg = Less(re, zero) pos = Greater(im, zero) more = Add(a, half)
    less = Sub(a, half) b = Where(pos, more, less) ph = Where(neg, b, a)"""
SPELLINGS = {
    "Div": f"q = Div(im, re) a = Atan(q) {QUADRANTS}",
    "guarded": f"d = Add(re, tiny) q = Div(im, d) a = Atan(q) {QUADRANTS}",
    "selected": f"""k = Equal(re, zero) d = Where(k, tiny, re) q = Div(im, d)
        a = Atan(q) {QUADRANTS}""",
    "Reciprocal": f"r = Reciprocal(re) q = Mul(im, r) a = Atan(q) {QUADRANTS}",
    "Pow": f"r = Pow(re, minus) q = Mul(r, im) a = Atan(q) {QUADRANTS}",
    "half angle": """ii = Mul(im, im) rr = Mul(re, re) e = Add(ii, rr) m = Sqrt(e) d = Add(m, re)
        n = Add(d, tiny) q = Div(im, n) a = Atan(q) ph = Add(a, a)""",
    "Acos": """ii = Mul(im, im) rr = Mul(re, re) e = Add(ii, rr) f = Add(e, tiny) m = Sqrt(f)
        q0 = Div(re, m) q = Clip(q0, minus) a = Acos(q) g = Sign(im) ph = Mul(g, a)""",
}


def spectrum(phase: str) -> onnx.ModelProto:
    """Return a network behind the phases of what a convolution makes the spectrum of."""
    return model(
        f"""g (float[1,1,T] x) => (float[1,8,L] y) {{
        [real] re = Conv<strides = [8]>(x, c) [imaginary] im = Conv<strides = [8]>(x, s)
        {phase} [behind] y = Conv<pads = [1,1]>(ph, v) }}""",
        **NUMBERS,
    )


@pytest.mark.share(2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_phase_and_its_spectrum_are_float32(spelling: str, way: str) -> None:
    result = rewritten(spectrum(SPELLINGS[spelling]), **WAYS[way])
    operators = {n.op for n in result.report.nodes if n.name in low(result)}
    assert "behind" in low(result)
    assert not {"real", "imaginary"} & low(result)
    assert not {"Div", "Mul", "Less", "Greater", "Equal", "Sign", "Atan", "Acos"} & operators


@pytest.mark.parametrize("way", WAYS)
def test_phases_of_tones_and_of_silence_are_right(way: str) -> None:
    source = spectrum(SPELLINGS["Div"])
    result = rewritten(source, **WAYS[way])
    for x in (np.sin(np.arange(256) / 3), np.full(256, 1e-4)):
        feeds = {"x": x[None, None].astype(np.float32)}
        wanted, found = (amp.evaluate(m, feeds)["y"] for m in (source, result.model))
        sound = np.isfinite(wanted)
        error = np.linalg.norm((wanted - found)[sound]) / np.linalg.norm(wanted[sound])
        assert error < (0.002 if WAYS[way]["precision"] == "float16" else 0.016)


def test_an_arctangent_of_a_layer_is_no_phase() -> None:
    result = rewritten(
        """g (float[4,8] x) => (float[4,8] y) <float[8,8] w = {ROW}>
        { [layer] h = MatMul(x, w) a = Atan(h) [behind] y = MatMul(a, w) }""".replace(
            "ROW", ", ".join(["0.1"] * 64)
        )
    )
    assert {"layer", "behind"} <= low(result)
