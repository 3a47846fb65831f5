"""Constants that round to zero: their consumers stay float32 where that matters."""

import numpy as np
import onnx.parser
import pytest
from rewriting import assert_rewrites

from amp_rewrite.dtypes import BFLOAT16, FLOAT16
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.io.load import load
from amp_rewrite.oplists import load_lists
from amp_rewrite.paint.context import PaintContext
from amp_rewrite.paint.painting import Reason
from amp_rewrite.paint.pipeline import paint

SQUARE = f"float[4,4] w = {{{','.join(['0.5'] * 16)}}}"


def model(body, constants="float eps = {1e-12}"):
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x) => (float[2,4] y)'
    source = f"{text} <{SQUARE}, {constants}> {{[a] h = MatMul(x, w) {body} [z] y = MatMul(k, w)}}"
    return onnx.parser.parse_model(source)


def marks(source, low=FLOAT16):
    """Return node -> mark of what the painting excludes."""
    type_graph = build_type_graph(load(source))
    painted = paint(PaintContext(type_graph, load_lists(precision=low.name, environ={}), low))
    assert not any(painted.painting.is_allow(vertex) for vertex in painted.context.excluded)
    return {type_graph.node_name(v): mark for v, mark in painted.context.excluded.items()}


def test_an_epsilon_keeps_the_sum_and_the_quotient_float32() -> None:
    assert_rewrites(
        """g (float[4,4] x) => (float[4,4] y)
        <float c = {1e-12}> {
            h = MatMul(x, x)
            d = Add(h, c)
            e = Div(h, d)
            y = MatMul(e, e)
        }""",
        """g (float[4,4] x) => (float[4,4] y)
        <float c = {1e-12}> {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            d = Add(h_fp32, c)
            e = Div(h_fp32, d)
            e_fp16 = Cast<to = 10>(e)
            y_fp16 = MatMul(e_fp16, e_fp16)
            y = Cast<to = 1>(y_fp16)
        }""",
    )


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("[add] d = Add(h, eps) [div] k = Div(h, d)", {"add", "div"}),
        ("[max] d = Max(h, eps) [log] k = Log(d)", {"max", "log"}),
        ("[clip] d = Clip(h, eps) [inv] k = Reciprocal(d)", {"clip", "inv"}),
        ("[add] d = Add(eps, h) [root] k = Sqrt(d)", {"add", "root"}),
        ("[add] d = Add(h, eps) [move] e = Transpose(d) [f] f = Transpose(e) [div] k = Div(h, f)",
         {"add", "move", "f", "div"}),
        ("[mul] k = Mul(h, eps)", {"mul"}),
        ("[div] k = Div(h, eps)", {"div"}),
    ],
)  # fmt: skip
def test_a_constant_that_keeps_zero_away_keeps_its_consumers_float32(body, kept):
    found = marks(model(body))
    assert set(found) == kept
    assert {mark.reason for mark in found.values()} == {Reason.CONSTANT_UNDERFLOW}
    assert any("1e-12 rounds to zero in float16" in str(mark.detail) for mark in found.values())


@pytest.mark.parametrize(
    ("body", "constants"),
    [
        ("[add] k = Add(h, eps)", "float eps = {1e-12}"),
        ("[add] d = Add(h, eps) [div] k = Div(d, h)", "float eps = {1e-12}"),
        ("[add] d = Add(h, eps) [div] k = Div(h, d)", "float eps = {1e-5}"),
        ("[add] d = Add(h, eps) [div] k = Div(h, d)", "float eps = {0}"),
        ("[mul] k = Mul(h, eps)", "float[4] eps = {1, 1e-12, 0, 2}"),
        ("[pad] k = Where(c, h, eps)", "float eps = {1e-12}, bool c = {1}"),
    ],
)
def test_constants_that_do_not_matter_change_nothing(body, constants):
    assert marks(model(body, constants)) == {}


def test_bfloat16_reaches_down_as_far_as_float32():
    assert marks(model("[add] d = Add(h, eps) [div] k = Div(h, d)"), BFLOAT16) == {}


def test_half_the_smallest_subnormal_rounds_to_zero_and_a_little_more_does_not():
    half = FLOAT16.smallest_subnormal / 2
    more = float(np.nextafter(np.float32(half), np.float32(1)))
    body = "[mul] k = Mul(h, eps)"
    assert set(marks(model(body, f"float eps = {{{half!r}}}"))) == {"mul"}
    assert marks(model(body, f"float eps = {{{more!r}}}")) == {}


def test_the_root_of_an_epsilon_may_be_large_enough_for_what_follows():
    body = "[add] d = Add(h, eps) [root] r = Sqrt(d) [div] k = Div(h, r)"
    assert set(marks(model(body))) == {"add", "root"}
    assert set(marks(model(body, "float eps = {1e-20}"))) == {"add", "root", "div"}
