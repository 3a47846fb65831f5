"""The rounds of a painting: what one excludes, the next ones paint without."""

from __future__ import annotations

import pickle
from importlib import import_module

import onnx
import pytest
from rewrite_text import assert_rewrites, lists_of, parse, step

from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Stage
from amp_rewrite.rewriting.paint.painting import Mark, Painting, PassReason
from amp_rewrite.rewriting.paint.pass_table import PASSES
from amp_rewrite.rewriting.paint.pipeline import KEEPING, paint, paint_once, passes_of
from amp_rewrite.rewriting.paint.value_facts import ValueFacts
from amp_rewrite.rewriting.reasons import REASONS

OVERFLOWS = """g (float[4,4] x) => (float[4,4] y)
<float c = {1048576}> {
    h = MatMul(x, x)
    d = Div(h, c)
    s = Sigmoid(d)
    y = Exp(s)
}"""


GRADIENT = step(
    """g (float[4,4] x) => (float[4,4] y)
    <float c = {1048576}> {
        h = MatMul(x, x)
        [f] s = Div(h, c)
        a = MatMul(s, s)
        [g] d = Mul(a, a)
        y = MatMul(d, d)
    }""",
    {"g": "gradient of f"},
)


def context_of(source: str | onnx.ModelProto) -> PaintContext:
    model = parse(source) if isinstance(source, str) else source
    type_graph = build_type_graph(read_flat(model))
    values = ValueFacts(type_graph, FLOAT16)
    return PaintContext(type_graph, lists_of("float16"), FLOAT16, values=values)


def _excluded(context: PaintContext, painting: Painting) -> dict[int, Mark]:
    """Return what the keeping passes find in a painting."""
    found: dict[int, Mark] = {}
    for keeper in KEEPING:
        found |= keeper.run(context, painting).changes(painting)
    return found


def test_what_followed_an_excluded_operator_goes_with_it() -> None:
    assert_rewrites(
        OVERFLOWS,
        """g (float[4,4] x) => (float[4,4] y)
        <float c = {1048576}> {
            x_fp16 = Cast<to = 10>(x)
            h = MatMul(x_fp16, x_fp16)
            h_fp32 = Cast<to = 1>(h)
            d = Div(h_fp32, c)
            s = Sigmoid(d)
            y = Exp(s)
        }""",
    )


def test_the_painting_says_which_constant_excluded_a_vertex() -> None:
    context = context_of(OVERFLOWS)
    painted = paint(context)
    (vertex,) = painted.context.excluded
    mark = painted.painting.marks[vertex]
    graph = context.type_graph
    assert (graph.node_name(vertex), mark.reason) == ("Div_1", "constant-overflow")
    assert mark.constant is not None
    assert graph.flat.value_names[mark.constant] == "c"
    assert not context.excluded  # a context is a value


def test_a_round_may_exclude_what_only_the_round_before_made_a_problem() -> None:
    context = context_of(GRADIENT)
    name = context.type_graph.node_name
    first = _excluded(context, paint_once(context))
    assert [name(v) for v in first] == ["f"]
    second = context.excluding(first)
    assert [name(v) for v in _excluded(second, paint_once(second))] == ["g"]
    assert [name(v) for v in paint(context).context.excluded] == ["f", "g"]


@pytest.mark.parametrize("model", [OVERFLOWS, GRADIENT], ids=["overflow", "gradient"])
def test_a_finished_painting_is_a_fixed_point(model: str | onnx.ModelProto) -> None:
    painted = paint(context_of(model))
    last_round = paint_once(painted.context)
    assert _excluded(painted.context, last_round) == {}
    assert not any(last_round.is_allow(vertex) for vertex in painted.context.excluded)


@pytest.mark.parametrize("paint_pass", PASSES)
def test_a_pass_is_called_like_its_file(paint_pass: PaintPass) -> None:
    module = import_module(paint_pass.__module__)
    word = module.__name__.rpartition(".")[2]
    assert paint_pass.name == word.replace("_", "-")
    assert getattr(module, word) is paint_pass


def test_every_pass_has_a_place_of_its_own() -> None:
    places = [(place.stage, place.order) for step in PASSES for place in step.places]
    assert len(places) == len({*places})
    assert all(step.places for step in PASSES)
    assert {stage for stage, _ in places} == {*Stage}
    names = [step.name for step in passes_of(Stage.COLORING)]
    assert names[:2] == ["spread-deny", "match-sequences"]
    assert names[-1] == "retarget-dequantizers"


def test_reasons_are_told_apart_and_have_their_words() -> None:
    assert len(REASONS) == len({*REASONS})
    assert all(reason.phrase and reason.plain for reason in REASONS)


def test_a_reason_of_a_pass_is_its_word() -> None:
    reason = PassReason("scalar", "a", "b")
    copied: PassReason = pickle.loads(pickle.dumps(reason))
    assert (copied.phrase, copied.plain) == ("a", "b")
    assert copied == "scalar"
