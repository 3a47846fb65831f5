"""Inputs made from what a model declares."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import amp_rewrite as amp
from amp_rewrite.errors import DataError
from amp_rewrite.numerics.emulate import Evaluator
from amp_rewrite.numerics.inputs.free_sizes import FreeSizes
from amp_rewrite.numerics.inputs.linked_sizes import index_limits
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs

HEADER = '<ir_version: 9, opset_import: ["" : 17]>'


def made(inputs: str, seed: int = 0, attempt: int = 0) -> dict[str, Any]:
    model = onnx.parser.parse_model(
        HEADER + f"g ({inputs}) => (bool c) {{ c = Constant <value = bool {{1}}> () }}"
    )
    for value in model.graph.input:
        value.type.tensor_type.shape.SetInParent()  # the notation has none for a scalar
    return PlausibleInputs.of(amp.load(model), seed).feeds(FreeSizes(attempt))


@pytest.mark.parametrize("shape", ["N,3,H,W", "N,H,W,3", "1,3,224,224"])
def test_an_image_is_smooth_and_of_an_image_s_size(shape: str) -> None:
    image = made(f"float[{shape}] pixels")["pixels"]
    assert sorted(image.shape) == [1, 3, 224, 224]
    assert image.dtype == np.float32
    assert 1 < np.abs(image).max() < 4


def test_integers_are_what_their_names_say() -> None:
    feeds = made(
        "int64[1,8] attention_mask, int64[1,8] token_type_ids, int64[1,8] position_ids,"
        "int64[] sr, int64[1,8] input_ids, uint8[4,4,3] photo"
    )
    assert feeds["attention_mask"].tolist() == [[1] * 8]
    assert feeds["token_type_ids"].tolist() == [[0] * 8]
    assert feeds["position_ids"].tolist() == [list(range(8))]
    assert feeds["sr"] == 16000
    assert set(feeds["input_ids"].ravel().tolist()) <= {0, 1}
    assert feeds["photo"].max() > 100


@pytest.mark.parametrize("ends", [(0.0, 255.0), (-1.0, 1.0), (100.0, float("inf")), (5.0, 5.0)])
@pytest.mark.parametrize("kind", ["float", "float16", "int64"])
def test_what_the_user_says_of_an_input_is_kept(kind: str, ends: tuple[float, float]) -> None:
    model = amp.load(
        onnx.parser.parse_model(HEADER + f"g ({kind}[8,50] x) => ({kind}[8,50] y) {{ y = Neg(x) }}")
    )
    made = PlausibleInputs.of(model, ranges={"x": ends})
    x = made.feeds(FreeSizes())["x"]
    assert x.min() >= ends[0]
    assert x.max() <= ends[1]
    assert x.dtype == made.specs["x"].dtype
    assert kind == "int64" or ends != (0.0, 255.0) or x.max() > 200


def test_ids_fit_the_table_that_they_index() -> None:
    model = onnx.parser.parse_model(
        HEADER
        + """g (int32[1,64] ids) => (float[1,64,4] y) {
          wide = Cast <to = 7> (ids)
          y = Gather(table, wide)
        }"""
    )
    model.graph.initializer.append(numpy_helper.from_array(np.ones((50, 4), np.float32), "table"))
    ids = PlausibleInputs.of(amp.load(model)).feeds(FreeSizes(0))["ids"]
    assert ids.dtype == np.int32
    assert 25 < ids.max() < 50


def test_sizes_are_tried_until_the_model_runs() -> None:
    model = amp.load(
        onnx.parser.parse_model(
            HEADER
            + """g (float[1, samples] x) => (float[2, 256] y) {
              shape = Constant <value = int64[2] {2, 256}> ()
              y = Reshape(x, shape)
            }"""
        )
    )
    attempt, feeds = PlausibleInputs.of(model).runnable(Evaluator(model).run)
    assert feeds["x"].shape == (1, 512)
    assert attempt > 0


def test_a_model_that_runs_on_nothing_made_up_asks_for_data() -> None:
    model = amp.load(
        onnx.parser.parse_model(
            HEADER
            + """g (float[1, n] x) => (float[7, 11] y) {
              shape = Constant <value = int64[2] {7, 11}> ()
              y = Reshape(x, shape)
            }"""
        )
    )
    with pytest.raises(DataError, match=r"no made-up inputs fit.*--data"):
        PlausibleInputs.of(model).runnable(Evaluator(model).run)


INDEXED = '<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>'


def limits(body: str, **tables: tuple[int, ...]) -> dict[str, int]:
    text = INDEXED + f"g (int64[2] ids, int64[2] other) => (float[a, b] y) {{ {body} }}"
    model = onnx.parser.parse_model(text)
    for name, shape in tables.items():
        array = np.ones(shape, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return index_limits(amp.load(model))


def test_a_comparison_with_all_classes_is_a_one_hot() -> None:
    body = """classes = Constant <value = int64[4] {0, 1, 2, 3}> ()
      axis = Constant <value = int64[1] {1}> ()
      column = Unsqueeze(ids, axis) hot = Equal(column, classes) y = Cast <to = 1> (hot)"""
    assert limits(body) == {"ids": 4}


def test_fused_embeddings_have_a_table_for_each_input() -> None:
    body = """y, mask = com.microsoft.EmbedLayerNormalization(
      ids, other, words, positions, segments, gamma, beta)"""
    shapes = {"words": (30, 4), "positions": (20, 4), "segments": (2, 4)}
    assert limits(body, **shapes, gamma=(4,), beta=(4,)) == {"ids": 30, "other": 2}


@pytest.mark.parametrize("kind", ["float", "int64", "bool"])
def test_an_input_of_a_length_that_no_memory_holds_is_refused(kind: str) -> None:
    source = f"g ({kind}[2147483648, 30] x) => ({kind}[2147483648, 30] y) {{ y = Identity (x) }}"
    model = amp.load(onnx.parser.parse_model(f"{HEADER} {source}"))
    with pytest.raises(DataError, match="too large to be made up; found 64,424,509,440 elements"):
        PlausibleInputs.of(model).feeds(FreeSizes(0))
