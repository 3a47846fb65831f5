"""What an input is, by what consumes it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import amp_rewrite as amp
from amp_rewrite.numerics.inputs.input_roles import InputRole, Role, Scale, roles_of
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs

HEADER = '<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>'


def roles(graph: str, **weights: tuple[int, ...]) -> dict[str, InputRole]:
    model = onnx.parser.parse_model(HEADER + graph)
    for name, shape in weights.items():
        array = np.ones(shape, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    loaded = amp.load(model)
    made = PlausibleInputs.of(loaded)
    return roles_of(loaded, made.specs, made.limits)


def role(graph: str, name: str = "x", **weights: tuple[int, ...]) -> Role:
    return roles(graph, **weights)[name].role


@pytest.mark.parametrize("kind", ["Sin", "Cos"])
def test_what_becomes_an_angle_is_a_position(kind: str) -> None:
    found = roles(
        f"""g (int64[1,s] x) => (float[1,2,s] y) {{
          axes = Constant <value = int64[1] {{1}}> () column = Unsqueeze(x, axes)
          f = Cast <to = 1> (column) a = MatMul(w, f) e = Concat <axis = 1> (a, a)
          y = {kind}(e) }}""",
        w=(1, 2, 1),
    )
    assert found == {"x": InputRole(Role.POSITIONS)}


@pytest.mark.parametrize(
    "mask",
    [
        # as transformers exports it: (1 - mask) * lowest, added
        """f = Cast <to = 1> (x) one = Constant <value = float {1}> () inverted = Sub(one, f)
           low = Constant <value = float {-3.4e38}> () m = Mul(inverted, low) t = Add(s, m)""",
        # as torch.masked_fill exports it
        """zero = Constant <value = int64 {0}> () b = Equal(x, zero)
           low = Constant <value = float {-10000}> () t = Where(b, low, s)""",
    ],
)
def test_integers_that_decide_what_reaches_a_softmax_are_a_mask(mask: str) -> None:
    graph = f"""g (float[1,n,n] q, int64[1,n] x) => (float[1,n,n] y) {{
      s = MatMul(q, q) {mask} y = Softmax(t) }}"""
    assert role(graph) is Role.MASK


def test_floats_added_to_products_in_front_of_a_softmax_are_an_added_mask() -> None:
    found = roles(
        """g (float[1,n,n] q, float[1,n,n] x) => (float[1,n,n] y) {
          s = MatMul(q, q) t = Add(s, x) y = Softmax(t) }"""
    )
    assert found["x"] == InputRole(Role.MASK, added=True)
    assert found["q"].role is Role.DATA


def test_masks_of_fused_attention_are_found() -> None:
    graph = """g (float[1,4,8] q, int32[1,4] x) => (float[1,4,8] y) {
      y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, q, q, , x) }"""
    assert role(graph) is Role.MASK


IMAGE = "g (float[1,3,h,w] x) => (float[1,4,a,b] y) { %s y = Conv(n, filters) }"


@pytest.mark.parametrize(
    ("before", "scale"),
    [
        ("n = Identity(x)", Scale.UNKNOWN),
        ("c = Constant <value = float {255}> () n = Div(x, c)", Scale.BYTES),
        ("c = Constant <value = float {0.0171}> () n = Mul(x, c)", Scale.BYTES),
        ("c = Constant <value = float {0.225}> () n = Div(x, c)", Scale.UNIT),
    ],
)
def test_an_image_shows_its_scale_where_the_model_normalises_it(before: str, scale: Scale) -> None:
    found = roles(IMAGE % before, filters=(4, 3, 3, 3))
    assert found == {"x": InputRole(Role.IMAGE, scale=scale)}


def test_bytes_that_reach_a_convolution_are_an_image_of_bytes() -> None:
    found = roles(
        """g (uint8[1,h,w,3] x) => (float[1,4,a,b] y) {
          f = Cast <to = 1> (x) t = Transpose <perm = [0, 3, 1, 2]> (f) y = Conv(t, filters) }""",
        filters=(4, 3, 3, 3),
    )
    assert found == {"x": InputRole(Role.IMAGE, scale=Scale.BYTES)}


def test_an_image_is_found_in_a_quantised_model() -> None:
    found = roles(
        """g (float[1,3,h,w] x) => (float[1,4,a,b] y) {
          s = Constant <value = float {0.01}> () q = QuantizeLinear(x, s)
          d = DequantizeLinear(q, s) p = QuantizeLinear(filters, s)
          v = DequantizeLinear(p, s) y = Conv(d, v) }""",
        filters=(4, 3, 3, 3),
    )
    assert found["x"].role is Role.IMAGE


@pytest.mark.parametrize("shape", [(4, 1, 9), (4, 1, 1, 9)])
def test_one_axis_that_reaches_a_convolution_of_one_channel_is_a_sound(
    shape: tuple[int, ...],
) -> None:
    places = "{1}" if len(shape) == 3 else "{1, 2}"
    graph = f"""g (float[1,n] x) => (float[a,b,c] y) {{
      axes = Constant <value = int64[{len(shape) - 2}] {places}> () u = Unsqueeze(x, axes)
      y = Conv(u, filters) }}"""
    assert role(graph, filters=shape) is Role.SOUND


def test_what_a_recurrent_operator_begins_with_is_a_state() -> None:
    graph = """g (float[5,1,3] s, float[1,1,4] x) => (float[5,1,1,4] y) {
      y = GRU <hidden_size = 4> (s, w, r, , , x) }"""
    assert role(graph, w=(1, 12, 3), r=(1, 12, 4)) is Role.STATE
