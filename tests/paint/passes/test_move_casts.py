"""Casts move across clear operators where that lowers their number or what they read."""

from __future__ import annotations

from rewriting import assert_close, feeds_of, parse, rewritten

import amp_rewrite as amp

W = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}, int64[2] i = {0, 1}"


def model(body: str, outputs: str = "float[2,4] y", inputs: str = "float[2,4] x") -> str:
    shapes = "float[100,4] e0, float[2,4] g, float[2,4] h"
    return f"g0 ({inputs}) => ({outputs}) <{W}, {shapes}> {{ {body} }}"


def casts(result: amp.RewriteResult) -> list[tuple[str, str]]:
    return [(c.value, c.to) for c in result.report.casts if not c.existing]


def test_three_casts_behind_a_split_become_one_in_front() -> None:
    body = (
        "h = MatMul(x, w) a, b, c = Split<axis = 1>(h, sizes) "
        "d = Exp(a) e = Exp(b) f = Exp(c) y = Concat<axis = 1>(d, e, f)"
    )
    text = model(body).replace("int64[2] i = {0, 1}", "int64[3] sizes = {1, 1, 2}")
    result = rewritten(text)
    assert casts(result) == [("x", "float16"), ("h", "float32")]
    assert result.report.nodes[1].variables["T"].reason == "cast-moved"
    assert_close(result, text)


def test_the_cast_in_front_of_a_gather_moves_behind_it() -> None:
    text = model(
        "g = Gather<axis = 0>(e, i) y = MatMul(g, w)", inputs="float[2,4] x, float[100,4] e"
    )
    result = rewritten(text)
    assert casts(result) == [("g", "float16"), ("y", "float32")]
    assert_close(result, text)


def test_a_cast_does_not_move_to_a_place_of_unknown_size() -> None:
    text = model(
        "u = Gather<axis = 0>(e, i) y = MatMul(u, w)", inputs="float[2,4] x, float[100,4] e"
    )
    assert casts(rewritten(text)) == [("e", "float16"), ("y", "float32")]


def test_no_float32_consumer_reads_a_value_rounded_for_a_cast() -> None:
    text = model(
        "e = Exp(x) g = Relu(e) y = MatMul(g, w) h = Transpose<perm = [0, 1]>(g) z = Exp(h)",
        "float[2,4] y, float[2,4] z",
    )
    result = rewritten(text)
    assert ("g", "float16") in casts(result)
    found = amp.evaluate(amp.to_proto(result.model), {"x": feeds_of(parse(text))["x"]})
    expected = amp.evaluate(parse(text), {"x": feeds_of(parse(text))["x"]})
    assert (found["z"] == expected["z"]).all()
