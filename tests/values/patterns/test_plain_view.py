"""Producers and readers of values, seen through nodes that change nothing."""

from __future__ import annotations

from rewrite_text import parse

from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.values.patterns.plain_view import PlainView, Reader

TEXT = """g (float[2] x) => (float[2] y, float16[2] z) {
    a = Identity(x)
    b = Cast<to = 1>(a)
    c = Abs(b)
    y = Identity(c)
    z = Cast<to = 10>(c)
}"""


def test_a_value_is_what_it_is_made_of() -> None:
    view = PlainView(build_type_graph(read_flat(parse(TEXT))))
    flat = view.type_graph.flat
    x, b, c, y, z = (next(flat.values_called(name)) for name in "xbcyz")
    assert view.source(b) == x
    assert view.source(z) == z
    assert view.maker(b) == ABSENT
    assert flat.node_names[view.maker(y)] == flat.node_names[flat.producer[c]]
    assert view.readers(x) == [Reader(flat.producer[c], 0)]
    assert view.readers(c) == [Reader(flat.producer[z], 0)]
    assert view.leaves(c)
    assert not view.leaves(x)
