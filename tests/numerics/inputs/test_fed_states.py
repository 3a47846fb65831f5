"""Inputs that are states are found by names, and by what makes the next state of them."""

from __future__ import annotations

import onnx
import pytest

import amp_rewrite as amp
from amp_rewrite.numerics.inputs.fed_states import states_of
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'


def found(inputs: str, outputs: str, body: str) -> dict[str, str]:
    model = amp.load(onnx.parser.parse_model(f"{HEADER} g ({inputs}) => ({outputs}) {{ {body} }}"))
    return states_of(model, PlausibleInputs.of(model))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("past_conv", "present_conv"),
        ("conv_cache", "new_conv_cache"),
        ("state", "stateN"),
        ("h", "hn"),
        ("h0", "hn"),
        ("cell_state_in", "cell_state_out"),
        ("prevState", "nextState"),
    ],
)
def test_states_are_found_by_their_names(before: str, after: str) -> None:
    body = f"s = MatMul({before}, x) {after} = Tanh(s) y = MatMul(x, s)"
    ends = (f"float[4,4] x, float[4,4] {before}", f"float[4,4] y, float[4,4] {after}")
    assert found(*ends, body) == {before: after}


@pytest.mark.parametrize(
    "body",
    [
        "e = Exp(x) a_out = Add(a, e) y = Exp(a_out)",
        "k = Mul(a, a) m = Identity(k) e = Exp(x) a_out = Add(m, e) y = Exp(x)",
        "n = Neg(a) e = Exp(x) a_out = Max(n, e) y = Exp(x)",
    ],
)
def test_states_are_found_by_arithmetic(body: str) -> None:
    assert found("float[4] x, float[4] a", "float[4] y, float[4] a_out", body) == {"a": "a_out"}


@pytest.mark.parametrize(
    ("inputs", "outputs", "body"),
    [
        ("float[4] x", "float[4] y", "y = Add(x, x)"),
        ("float[4] x, float[4] t", "float[4] y", "s = Exp(t) y = Add(x, s)"),
        ("float[4] x, float[4] a", "float[4] y, float[4] a_out", "a_out = Exp(a) y = Exp(x)"),
        ("float[4] h", "float[4] hn", "hn = Tanh(h)"),
        ("float[4] x, float[4] a", "float[4] y, float[4] b", "b = Add(a, x) y = Exp(b)"),
    ],
)
def test_what_is_no_state_is_not_fed_back(inputs: str, outputs: str, body: str) -> None:
    assert found(inputs, outputs, body) == {}


@pytest.mark.parametrize(
    ("before", "after"),
    [("z", "z_out"), ("hidden", "hidden_out"), ("state_0", "state_out_0"), ("x_prev", "x")],
)
def test_states_are_found_by_products_with_constants(before: str, after: str) -> None:
    body = f"""w = Constant<value_floats=[1.0, 2.0, 3.0, 4.0]>() s = Constant<value_ints=[2, 2]>()
      k = Reshape(w, s) kT = Transpose(k) r = MatMul({before}, kT) {after} = Add(r, u)
      y = Exp({after})"""
    ends = (f"float[2,2] u, float[2,2] {before}", f"float[2,2] y, float[2,2] {after}")
    assert found(*ends, body) == {before: after}


@pytest.mark.parametrize("outputs", ["float[1,1,4] s_out", "float[1,1,4] s_out, float[3,1,1,4] y"])
def test_the_first_state_of_a_recurrent_layer_is_one(outputs: str) -> None:
    body = """w = RandomNormal<shape=[1,12,2]>() r = RandomNormal<shape=[1,12,4]>()
      y, s_out = GRU<hidden_size=4>(x, w, r, "", "", s_in)""".replace('""', "")
    assert found("float[3,1,2] x, float[1,1,4] s_in", outputs, body) == {"s_in": "s_out"}


def test_what_a_layer_of_a_network_makes_is_no_state() -> None:
    body = "s = MatMul(hidden_states, mask) hidden_states_out = Add(hidden_states, s)"
    inputs = "float[4,4] hidden_states, float[4,4] mask"
    assert found(inputs, "float[4,4] hidden_states_out", body) == {}


def test_a_product_of_what_is_computed_is_no_state() -> None:
    body = "k = Exp(x) a_out = MatMul(a, k) y = Exp(x)"
    ends = ("float[4,4] x, float[4,4] a", "float[4,4] y, float[4,4] a_out")
    assert found(*ends, body) == {}
