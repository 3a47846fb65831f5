"""Attention over as many words as heads, with queries, keys and values in one product."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from amp_rewrite.runtimes.openvino.compiled_model import Session

SIZE = 8
PACKED = {"in front": ("3, {}", "2, 0, 3, 1, 4"), "inside": ("{}, 3", "3, 0, 2, 1, 4")}
"""Where the 3 stands in front of the Transpose, and the order of the axes."""


def attention(kind: str, words: int | str, heads: int) -> tuple[onnx.ModelProto, np.ndarray]:
    """Return self-attention over x (N, words, heads * SIZE), and the weight of its product."""
    lengths, order = PACKED[kind]
    width = heads * SIZE
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[N,{words},{width}] x) => (float[N,n,{width}] y)
        <int64[5] packed = {{0, -1, {lengths.format(heads)}, {SIZE}}}, int64 i = {{0}},
         int64 j = {{1}}, int64 l = {{2}}, int64[3] whole = {{0, -1, {width}}}> {{
        m = MatMul(x, w) r = Reshape(m, packed) t = Transpose<perm = [{order}]>(r)
        q = Gather<axis = 0>(t, i) k = Gather<axis = 0>(t, j) v = Gather<axis = 0>(t, l)
        c = Transpose<perm = [0, 1, 3, 2]>(k) s = MatMul(q, c) p = Softmax<axis = -1>(s)
        o = MatMul(p, v) u = Transpose<perm = [0, 2, 1, 3]>(o) y = Reshape(u, whole) }}"""
    )
    weight = np.random.default_rng(0).normal(0, 0.3, (width, 3 * width)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model, weight


def attended(kind: str, x: np.ndarray, weight: np.ndarray, heads: int) -> np.ndarray:
    """Return what the model computes."""
    made = (x @ weight).reshape(
        *x.shape[:2], *((3, heads) if kind == "in front" else (heads, 3)), SIZE
    )
    order = (2, 0, 3, 1, 4) if kind == "in front" else (3, 0, 2, 1, 4)
    q, k, v = made.transpose(order)
    scores = q @ k.swapaxes(-1, -2)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    found = scores / scores.sum(-1, keepdims=True) @ v
    return found.swapaxes(1, 2).reshape(x.shape)


@pytest.mark.share(2)
@pytest.mark.openvino
@pytest.mark.usefixtures("openvino")
@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("is_free", [False, True], ids=["static", "free"])
def test_as_many_words_as_heads_are_attended_rightly(kind: str, is_free: bool) -> None:
    for words, heads in ((4, 4), (16, 16), (5, 4)):
        model, weight = attention(kind, "S" if is_free else words, heads)
        session = Session(model, static=True)
        for seed in (1, 2):
            x = np.random.default_rng(seed).normal(size=(2, words, heads * SIZE)).astype(np.float32)
            found = session.run({"x": x})[0]
            expected = attended(kind, x, weight, heads)
            # by the norm: products of scores of 100 round otherwise on each processor
            assert np.linalg.norm(found - expected) <= 1e-4 * np.linalg.norm(expected)
