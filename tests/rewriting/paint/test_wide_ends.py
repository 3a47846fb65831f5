"""Inputs and outputs of which the digits count stay float32 though they might be 16-bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from pass_marks import model_of

import amp_rewrite as amp

NUMBERS = {
    "w": np.linspace(-1, 1, 512).reshape(16, 32),
    "v": np.linspace(-1, 1, 256).reshape(8, 32),
    "row": np.linspace(-1, 1, 32).reshape(1, 32),
    "turns": np.logspace(0, -4, 32)[None],
    "thousand": 1000.0,
    "table": np.linspace(-1, 1, 3200).reshape(100, 32),
    "ids": np.arange(2000.0, 2008.0)[None],
    "year": 2024.0,
    "three": 3.0,
    "last": np.array([1]),
    "keep": 0.999,
    "none_": np.array([0]),
    "one_": np.array([1]),
    "means": np.array([123.675, 116.28, 103.53])[:, None, None],
    "deviations": np.array([58.395, 57.12, 57.375])[:, None, None],
    "byte": 255.0,
    "ones": np.ones(16),
    "none": np.zeros(16),
    "pressure": np.full(16, 1013.0),
    "square": np.full(16, 25.0),
    "k": np.linspace(-1, 1, 216).reshape(8, 3, 3, 3),
}
TWO = "g (float[B,1] t, float[B,16] x) => (float[B,32] y)"
LAYER = "h = MatMul(x, w)"


def ends_of(text: str, opset: int = 17, **options: Any) -> tuple[set[str], dict[str, str]]:
    """Return the inputs and outputs that are float32, and what is said of those that stay so."""
    source = model_of(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}', **NUMBERS)
    asked: dict[str, Any] = {"keep_io_types": False, "target": "cuda", **options}
    result = amp.rewrite(source, **asked)
    graph = amp.to_proto(result.model).graph
    wide = {
        end.name
        for end in (*graph.input, *graph.output)
        if end.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    }
    return wide, dict(result.report.wide_ends)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{TWO} {{ a = Mul(t, turns) s = Sin(a) {LAYER} y = Mul(s, h) }}", "angle"),
        (
            f"{TWO} {{ u = Mul(t, thousand) a = MatMul(u, turns) s = Cos(a) {LAYER} "
            "y = Add(s, h) }",
            "angle",
        ),
        (
            f"{TWO} {{ i = Cast<to = 7>(t) e = Gather(table, i) s = Squeeze(e, last) {LAYER} "
            "y = Add(s, h) }",
            "index",
        ),
        (
            f"{TWO} {{ b = Equal(t, ids) e = Cast<to = 1>(b) z = MatMul(e, v) {LAYER} "
            "y = Add(z, h) }",
            "step",
        ),
        (
            f"{TWO} {{ a = Sub(t, year) b = Div(a, three) c = MatMul(b, row) {LAYER} "
            "y = Add(c, h) }",
            "takes from it",
        ),
        (
            f"{TWO} {{ m = ReduceMean<axes=[0]>(t) a = Sub(t, m) c = MatMul(a, row) {LAYER} "
            "y = Add(c, h) }",
            "takes from it",
        ),
        (
            f"{TWO} {{ l = Slice(t, none_, one_, none_) a = Sub(t, l) c = MatMul(a, row) {LAYER} "
            "y = Add(c, h) }",
            "takes from it",
        ),
        (
            f"{TWO} {{ l = Slice(t, none_, one_, none_) a = Div(t, l) b = Log(a) "
            f"c = MatMul(b, row) {LAYER} y = Add(c, h) }}",
            "takes from it",
        ),
    ],
)
@pytest.mark.parametrize("opset", [13, 17])
def test_an_input_of_which_the_digits_count_stays_float32(text: str, why: str, opset: int) -> None:
    wide, said = ends_of(text, opset)
    assert wide == {"t"}
    assert why in said["t"]


def test_a_column_that_is_normalised_by_statistics_stays_float32() -> None:
    text = (
        "g (float[B,16] x) => (float[B,32] y) { "
        "n = BatchNormalization(x, ones, none, pressure, square) y = MatMul(n, w) }"
    )
    assert ends_of(text)[0] == {"x"}


@pytest.mark.parametrize(
    "text",
    [
        "g (float[N,3,H,W] x) => (float[N,8,I,J] y) { a = Div(x, byte) y = Conv(a, k) }",
        "g (float[N,3,H,W] x) => (float[N,8,I,J] y) { a = Sub(x, means) b = Div(a, deviations) "
        "y = Conv(b, k) }",
        "g (float[B,16] x) => (float[B,32] y) { l = Slice(x, none_, one_, none_) a = Div(x, l) "
        "y = MatMul(a, w) }",
        "g (float[B,16] x) => (float[B,32] y) { h = MatMul(x, w) s = Sin(h) y = Mul(s, h) }",
        "g (float[B,16] x) => (float[B,32] y) { n = LayerNormalization(x, ones) y = MatMul(n, w) }",
    ],
)
def test_other_inputs_give_up_their_type(text: str) -> None:
    assert ends_of(text) == (set(), {})


STATE = (
    "g (float[1,16] x, float[1,32] m) => (float[1,32] y, float[1,32] n) { h = MatMul(x, w) "
    "a = Mul(m, keep) n = Add(a, h) y = Tanh(h) }"
)


def test_a_state_stays_float32_at_both_ends() -> None:
    wide, said = ends_of(STATE)
    assert wide == {"m", "n"} == set(said)


def test_who_allows_the_node_that_demands_it_gets_a_low_input() -> None:
    text = f"{TWO} {{ a = Mul(t, turns) [sine] s = Sin(a) {LAYER} y = Mul(s, h) }}"
    assert "--allow-node sine" in ends_of(text)[1]["t"]
    assert ends_of(text, allow_nodes=["sine"]) == (set(), {})


def test_the_report_says_why_in_a_line_and_in_json() -> None:
    text = f"{TWO} {{ a = Mul(t, turns) s = Sin(a) {LAYER} y = Mul(s, h) }}"
    report = amp.rewrite(model_of(text, **NUMBERS), keep_io_types=False).report
    assert "t stays float32: Sin_1 makes an angle of it" in report.to_text()
    assert list(report.to_dict()["wide_ends"]) == ["t"]


def test_the_search_tries_float32_inputs_before_it_gives_up() -> None:
    steps = np.zeros((8, 7))
    steps[range(7), range(7)], steps[range(1, 8), range(7)] = 1, -1
    numbers = {
        "steps": steps,
        "ten": 10.0,
        "first": np.random.default_rng(0).normal(size=(7, 32)) / 3,
        "second": np.random.default_rng(1).normal(size=(32, 4)) / 6,
    }
    source = model_of(
        "g (float[B,8] x) => (float[B,4] y) { d = MatMul(x, steps) e = Mul(d, ten) t = Tanh(e) "
        "h = MatMul(t, first) s = Tanh(h) y = MatMul(s, second) }",
        **numbers,
    )
    noise = np.random.default_rng(2).normal(size=(16, 8))
    made = amp.convert(
        source, {"x": (1999.3 + 0.1 * noise).astype(np.float32)}, keep_io_types=False
    )
    assert made.ok
    assert made.wide_inputs == ("x",)
    assert "x: float32, for nothing passes with 16-bit inputs" in str(made.verdict)


def test_check_flags_16_bit_data_for_an_input_of_which_the_digits_count(tmp_path: Path) -> None:
    text = f"{TWO} {{ a = Mul(t, turns) [sine] s = Sin(a) {LAYER} y = Mul(s, h) }}"
    made = amp.to_proto(amp.rewrite(model_of(text, **NUMBERS), keep_io_types=False).model)
    feeds = {"t": np.array([[998.4]], np.float16), "x": np.ones((1, 16), np.float16)}
    np.savez(tmp_path / "feeds.npz", **feeds)
    for data in (feeds, [feeds], tmp_path / "feeds.npz"):
        (danger,) = amp.check(made, data).dangers
        assert (danger.node, danger.op) == ("t", "input")
        assert danger.detail.startswith("sine makes an angle of it")
    assert amp.check(made, {**feeds, "t": np.array([[998.4]], np.float32)}).ok
