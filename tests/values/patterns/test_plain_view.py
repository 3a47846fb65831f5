"""Producers and readers of values, seen through nodes that change nothing."""

from __future__ import annotations

from rewrite_text import parse

from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.io.load import load
from amp_rewrite.values.patterns.plain_view import PlainView, Reader

TEXT = """g (float[2] x) => (float[2] y, float16[2] z) {
    a = Identity(x)
    b = Cast<to = 1>(a)
    c = Abs(b)
    y = Identity(c)
    z = Cast<to = 10>(c)
}"""


def test_a_value_is_what_it_is_made_of() -> None:
    view = PlainView(build_type_graph(load(parse(TEXT))))
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


def view_of(text: str) -> PlainView:
    return PlainView(build_type_graph(load(parse(text))))


def test_one_value_has_many_names() -> None:
    view = view_of("""g (float[2] x) => (float[2] e, float[2] y) {
        a = Abs(x) b = Identity(a) c = Identity(b) d = Identity(a) e = Cast<to = 1>(c)
        h = Exp(d) y = Add(c, h) }""")
    flat = view.type_graph.flat
    a, c, d, e, h, y = (next(flat.values_called(name)) for name in "acdehy")
    assert {view.source(value) for value in (a, c, d, e)} == {a}
    assert [flat.value_names[value] for value in view.names_of(a)] == ["a", "b", "d", "c", "e"]
    assert view.names_of(h) == [h]
    assert view.maker(e) == flat.producer[a]
    assert set(view.readers(a)) == {Reader(flat.producer[h], 0), Reader(flat.producer[y], 0)}
    assert view.readers(h) == [Reader(flat.producer[y], 1)]
    assert view.leaves(a)
    assert view.leaves(y)
    assert not view.leaves(h)
    dropped = {flat.value_names[flat.outputs_of(node)[0]] for node in view.dropped}
    assert dropped == {"b", "c", "d", "e"}
