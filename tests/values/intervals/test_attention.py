"""Attention and rotary embeddings of ai.onnx."""

from __future__ import annotations

from interval_models import NOTHING, ends, known_of, model_of, named, near
from rewrite_text import needs_opset

from amp_rewrite.values.intervals.attention import rotated
from amp_rewrite.values.intervals.interval import Interval, between

ROOM = 1.001


def test_a_turned_pair_is_no_longer_than_before_or_its_turning_makes_it() -> None:
    assert rotated(between(-4, 3), between(-1, 1), between(-0.5, 1)) == near((-8 * ROOM, 8 * ROOM))
    assert rotated(between(-4, 3), between(-0.25, 0), between(0, 0.25)) == near(
        (-4 * ROOM, 4 * ROOM)
    )


INPUTS = """float[1,2,3,4] q, float[1,2,3,4] k, float[1,2,3,4] v, float[1,2,5,4] p,
    float[1,2,5,4] s, float[3,3] m"""
GIVEN = {
    "k": Interval(-2, 3, 1, 3),
    "v": Interval(2, 5, 2, 5),
    "p": Interval(-7, 1, 0, 7),
    "s": Interval(-1, 9, 0, 9),
}


@needs_opset(23)
def test_attention_averages_values_and_keeps_what_it_read() -> None:
    model = model_of("y, k2, v2, z = Attention(q, k, v)", INPUTS, opset=23)
    found = known_of(model, GIVEN)
    assert named(found)[:2] == ends(0, 5 * ROOM)
    assert named(found, "k2") == near(Interval(-2, 3, 1, 1))
    assert named(found, "v2") == near(Interval(2, 5, 2, 2))
    assert tuple(named(found, "z")) == NOTHING
