"""How many rows an input chooses from."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import amp_rewrite as amp
from amp_rewrite.numerics.inputs.index_limits import index_limits

HEADER = '<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>'


def limits(body: str, **tables: tuple[int, ...]) -> dict[str, int]:
    text = HEADER + f"g (int64[2] ids, int64[2] other) => (float[a, b] y) {{ {body} }}"
    model = onnx.parser.parse_model(text)
    for name, shape in tables.items():
        array = np.ones(shape, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return index_limits(amp.load(model))


def test_what_only_says_a_shape_or_a_place_indexes_no_table() -> None:
    body = "moved = GatherElements <axis = 0> (ids, other) y = Gather(weights, moved)"
    assert limits(body, weights=(50, 4)) == {"ids": 50}


def test_the_smallest_of_several_tables_counts() -> None:
    body = "a = Gather(large, ids) b = Gather(small, ids) y = Add(a, b)"
    assert limits(body, large=(50, 4), small=(7, 4)) == {"ids": 7}


@pytest.mark.parametrize(("axis", "size"), [("<axis = 1>", 4), ("<axis = -2>", 50), ("", 50)])
def test_the_axis_of_a_gather_counts(axis: str, size: int) -> None:
    assert limits(f"y = Gather {axis} (table, ids)", table=(50, 4)) == {"ids": size}


def test_a_one_hot_chooses_from_its_depth() -> None:
    body = """depth = Constant <value = int64 {9}> () values = Constant <value = float[2] {0, 1}> ()
      y = OneHot(ids, depth, values)"""
    assert limits(body) == {"ids": 9}


def test_a_comparison_with_all_classes_is_a_one_hot() -> None:
    body = """classes = Constant <value = int64[4] {0, 1, 2, 3}> ()
      axis = Constant <value = int64[1] {1}> ()
      column = Unsqueeze(ids, axis) hot = Equal(column, classes) y = Cast <to = 1> (hot)"""
    assert limits(body) == {"ids": 4}


def test_a_comparison_with_one_number_is_none() -> None:
    body = "pad = Constant <value = int64 {0}> () hot = Equal(ids, pad) y = Cast <to = 1> (hot)"
    assert limits(body) == {}


def test_fused_embeddings_have_a_table_for_each_input() -> None:
    body = """y, mask = com.microsoft.EmbedLayerNormalization(
      ids, other, words, positions, segments, gamma, beta)"""
    shapes = {"words": (30, 4), "positions": (20, 4), "segments": (2, 4)}
    assert limits(body, **shapes, gamma=(4,), beta=(4,)) == {"ids": 30, "other": 2}


def test_a_table_that_is_computed_has_no_known_size() -> None:
    body = "t = Transpose(table) n = Neg(t) y = Gather(n, ids)"
    assert limits(body, table=(50, 4)) == {}
