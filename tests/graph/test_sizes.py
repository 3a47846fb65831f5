"""Sizes are what shapes say, and unknown where they do not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.graph.io.read_object import read_object
from amp_rewrite.graph.sizes import Sizes

TEXT = """g (float[2,3,8,8] x, float[N,5] f, float u) => (float[2,6,6,6] c, float[N,7] y) {
  c = Conv(x, k) y = MatMul(f, w) n = Constant<value = float[3] {1,2,3}>() z = Exp(f) }"""


def flats(text: str) -> list[FlatGraph]:
    model = parse(text)
    for name, shape in {"k": (6, 3, 3, 3), "w": (5, 7), "nothing": (0,)}.items():
        model.graph.initializer.append(
            onnx.numpy_helper.from_array(np.zeros(shape, np.float32), name)
        )
    return [read_flat(model.SerializeToString()), read_object(amp.load(model))]


@pytest.mark.parametrize("kind", [0, 1], ids=["messages", "objects"])
def test_elements_are_those_of_recorded_shapes(kind: int) -> None:
    flat = flats(TEXT)[kind]
    sizes = Sizes(flat)
    found = {name: sizes.elements(v) for v, name in enumerate(flat.value_names)}
    assert found == {
        **dict(zip("xckwnu", (384, 432, 162, 35, 3, 1), strict=True)),
        **dict.fromkeys("fyz"),
        "nothing": 0,
    }
    assert sizes.elements(ABSENT) is None


def test_inferred_shapes_count_instead() -> None:
    flat = flats(TEXT)[0]
    names = flat.value_names
    sizes = Sizes(flat, {names.index("f"): (4, 5), names.index("y"): (4, 7)})
    assert sizes.elements(names.index("f")) == 20
