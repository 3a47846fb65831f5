"""Inputs that a model normalises as images of bytes are estimated as such."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pass_marks import context_of, model_of

import amp_rewrite as amp

MEANS, DEVIATIONS = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
NUMBERS: dict[str, Any] = {
    "byte": 255.0,
    "inverse": 1 / 255,
    "middle": 127.5,
    "square": 65025.0,
    "deviation": 58.5,
    "means": np.array(MEANS)[:, None, None],
    "minus": -np.array(MEANS)[:, None, None],
    "deviations": np.array(DEVIATIONS)[:, None, None],
    "ten": 10.0,
    "half": 0.5,
    "two": 2.0,
    "k": np.full((8, 3, 3, 3), 0.25),
}


def spread(body: str) -> float:
    """Return the estimated deviation of the input of a model."""
    context = context_of(
        model_of(f"g (float[N,3,H,W] x) => (float[N,A,B,C] y) {{ {body} }}", **NUMBERS)
    )
    estimate = context.values.estimates[context.type_graph.flat.main.inputs[0]]
    assert estimate is not None
    return estimate.spread


@pytest.mark.parametrize(
    "body",
    [
        "y = Div(x, byte)",
        "y = Mul(x, inverse)",
        "a = Sub(x, middle) y = Div(a, middle)",
        "a = Sub(x, means) y = Div(a, deviations)",
        "t = Transpose(x) a = Add(t, minus) y = Identity(a)",
        "y = Div(x, deviation)",
        "a = Mul(x, x) y = Div(a, square)",
        "a = Pow(x, two) y = Div(a, square)",
    ],
)
def test_constants_of_images_tell_of_bytes(body: str) -> None:
    assert spread(body) > 50


@pytest.mark.parametrize(
    "body",
    ["y = Mul(x, half)", "y = Div(x, ten)", "y = Conv(x, k)", "a = Sub(x, half) y = Div(a, half)"],
)
def test_other_constants_do_not(body: str) -> None:
    assert spread(body) == 1


def test_a_value_near_the_end_of_the_type_is_told() -> None:
    body = "a = Div(x, deviation) b = Conv(a, k) c = Conv(b, m) d = Relu(c) y = Conv(d, n)"
    numbers = {**NUMBERS, "m": np.full((8, 8, 3, 3), 4.0), "n": np.full((1, 8, 1, 1), 1e-3)}
    source = model_of(f"g (float[N,3,H,W] x) => (float[N,1,A,B] y) {{ {body} }}", **numbers)
    said = amp.rewrite(source, target="cuda").report.near_end
    assert said is not None
    assert "float16 ends at 65504" in said
    assert amp.rewrite(source, target="cuda", precision="bfloat16").report.near_end is None


def test_layers_that_multiply_deviations_are_told_though_estimates_halve_them() -> None:
    generator = np.random.default_rng(0)
    weights = {
        f"w{i}": 3 * generator.normal(size=(16, 16, 3, 3)) * (2 / 144) ** 0.5 for i in range(10)
    }
    body = "r0 = Identity(x) "
    body += " ".join(f"h{i} = Conv(r{i}, w{i}) r{i + 1} = Relu(h{i})" for i in range(10))
    text = f"g (float[N,16,H,W] x) => (float[N,1,A,B] y) {{ {body} y = Conv(r10, last) }}"
    source = model_of(text, **weights, last=np.full((1, 16, 1, 1), 1e-4))
    assert (amp.rewrite(source, target="cuda").report.near_end or "").startswith("h9 may reach")
    calm = {name: weight / 3 for name, weight in weights.items()}
    source = model_of(text, **calm, last=np.full((1, 16, 1, 1), 1e-4))
    assert amp.rewrite(source, target="cuda").report.near_end is None
