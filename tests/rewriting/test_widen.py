"""Models in other float types, read as the float32 models that they stand for."""

from __future__ import annotations

from pathlib import Path

import low_models
import numpy as np
import onnx
import pytest
import runs
from backend_cases import all_cases
from onnx import TensorProto, numpy_helper
from rewrite_text import lines, parse
from thinned import every

import amp_rewrite as amp
from amp_rewrite.errors import AmpError, GraphError, OptionError
from amp_rewrite.graph.elements import element
from amp_rewrite.graph.infer import infer
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.rewriting.clashes import clashes_of

OTHER = {TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}
LAYER = (
    "g (float16[2,4] x) => (float16[2,4] y) <float16[4,4] w> {"
    " h = MatMul(x, w) f = Cast<to = 1>(h) e = Exp(f) c = Cast<to = 10>(e) y = Add(c, h) }"
)


def weighted(text: str, scale: float = 1.0) -> onnx.ModelProto:
    """Return a model whose initializer w holds numbers, in the type that the text gives it."""
    model = parse(text.replace("<float16[4,4] w>", "").replace("x) =>", "x, float16[4,4] w) =>"))
    del model.graph.input[1]
    values = (scale * np.linspace(-1, 1, 16)).reshape(4, 4).astype(np.float16)
    model.graph.initializer.append(numpy_helper.from_array(values, "w"))
    return model


def after(model: onnx.ModelProto, **options: object) -> list[str]:
    """Return the lines of the float32 form, without the numbers of its weights."""
    graph = amp.to_proto(amp.widen(model, **options).model).graph  # pyright: ignore[reportArgumentType]
    del graph.initializer[:]
    del graph.value_info[:]
    return lines(graph)


def test_casts_of_islands_go_and_inputs_and_outputs_keep_their_types() -> None:
    assert after(weighted(LAYER))[1:] == [
        "x_fp32 = Cast <to: int = 1> (x)",
        "h = MatMul (x_fp32, w)",
        "e = Exp (h)",
        "y_fp32 = Add (e, h)",
        "y = Cast <to: int = 10> (y_fp32)",
        "}",
    ]


def test_inputs_and_outputs_become_float32_if_they_are_to() -> None:
    wide = amp.widen(weighted(LAYER), keep_io_types=False).model
    assert [v.dtype for v in (*wide.graph.inputs, *wide.graph.outputs)] == [1, 1]
    assert "Cast" not in {node.op_type for node in wide.graph}


def test_weights_are_the_same_numbers() -> None:
    model = weighted(LAYER)
    held = amp.widen(model).model.graph.initializers["w"].const_value
    assert held is not None
    assert held.numpy().dtype == np.float32
    np.testing.assert_array_equal(held.numpy(), numpy_helper.to_array(model.graph.initializer[0]))


def test_a_model_in_float32_is_not_changed() -> None:
    made = amp.widen(parse("g (float[2] x) => (float[2] y) { y = Relu(x) }"))
    assert not made.changed
    assert "no other float type" in repr(made)


def test_what_cannot_become_float32_is_said_in_one_line() -> None:
    old = parse(
        '<ir_version: 3, opset_import: ["" : 5]> g (float16[2] x) => (float16[2] y) { y = Relu(x) }'
    )
    with pytest.raises(GraphError, match="nothing of the model can become float32"):
        amp.widen(old)


def test_a_name_that_is_no_input_is_refused() -> None:
    with pytest.raises(OptionError, match="keep_io_types"):
        amp.widen(weighted(LAYER), keep_io_types=["nobody"])


def test_a_file_is_written_as_the_model_in_memory_is(tmp_path: Path) -> None:
    source, target = tmp_path / "low.onnx", tmp_path / "wide.onnx"
    onnx.save(
        low_models.whisper_encoder(),
        source,
        save_as_external_data=True,
        location="low.data",
        size_threshold=0,
    )
    made = amp.widen(source)
    made.save(target)
    loaded = amp.load(target)
    for name, value in made.model.graph.initializers.items():
        written = loaded.graph.initializers[name].const_value
        assert value.const_value is not None
        assert written is not None
        np.testing.assert_array_equal(written.numpy(), value.const_value.numpy())


@pytest.mark.parametrize(("name", "precision"), [("llama", "float16"), ("whisper", "bfloat16")])
def test_one_low_type_becomes_the_other_and_twice_is_once(name: str, precision: str) -> None:
    model = low_models.MODELS[name]()
    made = amp.rewrite(model, precision=precision)  # pyright: ignore[reportArgumentType]
    assert made.report.summary.compute_converted == 1
    given = [(v.name, v.type.tensor_type.elem_type) for v in model.graph.input]
    assert [(v.name, v.dtype) for v in made.model.graph.inputs] == given
    assert amp.verify(amp.widen(model).model, made.model, [low_models.feeds(name)]).ok
    again = amp.rewrite(made.model, precision=precision)  # pyright: ignore[reportArgumentType]
    assert not again.changed


@pytest.mark.parametrize("target", ["cuda", "webgpu"])
@pytest.mark.parametrize("name", ["gemma", "nanochat"])
def test_four_bits_with_float32_become_four_bits_with_float16_and_are_widened_again(
    name: str, target: str
) -> None:
    make = getattr(low_models, f"{name}_decoder")
    wide = make(TensorProto.FLOAT, blocks=True)
    made = amp.rewrite(wide, target=target, keep_io_types=False)
    q4f16 = amp.to_proto(made.model)
    codes = {t.name: t for t in wide.graph.initializer if t.data_type == TensorProto.UINT8}
    kept = {t.name: t for t in q4f16.graph.initializer if t.data_type == TensorProto.UINT8}
    assert codes == kept
    held = {t.name: t.data_type for t in q4f16.graph.initializer}
    products = [n for n in q4f16.graph.node if n.op_type == "MatMulNBits"]
    low = [n for n in products if held[n.input[2]] == TensorProto.FLOAT16]
    assert len(low) >= 0.75 * len(products)  # all but what reads squares, or residuals that grow
    back = amp.to_proto(amp.widen(q4f16, keep_io_types=False).model)
    assert {t.name: t for t in back.graph.initializer if t.data_type == TensorProto.UINT8} == codes
    wide_types = {t.name: t.data_type for t in back.graph.initializer}
    scales = [n.input[2] for n in back.graph.node if n.op_type == "MatMulNBits"]
    assert {wide_types[name] for name in scales} == {TensorProto.FLOAT}
    runs.session_of(back.SerializeToString())


CODES = {"e": (8, 32), "w": (4, 64, 32)}
SCALES = {"es": (8, 2), "s": (4, 64)}


def test_rows_of_codes_and_quantised_experts_become_float16_with_their_scales() -> None:
    model = parse(
        """g (int64[2] ids, float[2,4] r) => (float[2,64] y) {
            x = com.microsoft.GatherBlockQuantized<block_size = 32, bits = 4>(e, ids, es)
            y = com.microsoft.QMoE<k = 2, expert_weight_bits = 4>(x, r, w, s, , w, s)
        }"""
    )
    rng = np.random.default_rng(0)
    held = {
        **{n: rng.integers(0, 255, s).astype(np.uint8) for n, s in CODES.items()},
        **{n: rng.uniform(0.01, 0.1, s).astype(np.float32) for n, s in SCALES.items()},
    }
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in held.items())
    made = amp.to_proto(amp.rewrite(model).model)
    after = {t.name: t for t in made.graph.initializer}
    for name, array in held.items():
        expected = array if array.dtype == np.uint8 else array.astype(np.float16)
        assert after[name] == numpy_helper.from_array(expected, name)
    assert [n.op_type for n in made.graph.node].count("Cast") == 2  # of r and y
    back = amp.to_proto(amp.widen(made).model)
    wide = {t.name: t.data_type for t in back.graph.initializer}
    assert set(wide.values()) == {TensorProto.FLOAT, TensorProto.UINT8}


def test_a_model_in_float64_becomes_a_mixed_one() -> None:
    model = low_models.regressor()
    made = amp.rewrite(model)
    assert made.report.summary.compute_converted == 1
    assert amp.verify(amp.widen(model).model, made.model, [low_models.feeds("regressor")]).ok


def test_float64_beside_float32_stays_for_somebody_chose_it() -> None:
    text = (
        "g (float[N,64] x) => (double[N,64] y) {"
        " a = Relu(x) d = Cast<to = 11>(a) t = Transpose<perm = [1, 0]>(d) s = MatMul(d, t)"
        " y = MatMul(s, d) }"
    )
    assert not amp.rewrite(parse(text)).changed


@pytest.mark.parametrize("number", [16777217.0, 1e300])
def test_a_constant_that_float32_cannot_hold_stays_float64(number: float) -> None:
    model = parse("g (double[4] x, double[1] c) => (double[4] y) { a = Add(x, c) y = Tanh(a) }")
    del model.graph.input[1]
    model.graph.initializer.append(numpy_helper.from_array(np.array([number]), "c"))
    flat = read_flat(amp.to_proto(amp.widen(model).model))
    types = infer(flat)
    made = {flat.called(n).op_type: types[flat.outputs_of(n)[0]] for n in range(flat.n_nodes)}
    assert (made["Add"], made["Tanh"]) == ("tensor(double)", "tensor(float)")


@pytest.mark.parametrize("part", every(range(48), 48))
def test_the_backend_cases_have_a_float32_form_that_has_none(part: int) -> None:
    for case in all_cases()[part::48]:
        try:
            made = amp.widen(case.model)
        except AmpError:
            continue
        if not made.changed:
            continue
        flat = read_flat(amp.to_proto(made.model))
        types = infer(flat)
        assert not [*clashes_of(flat, types)], case.name
        if not made.left:
            inside = [v for v in flat.outputs if v not in flat.main.outputs]
            assert not {element(types[v] or "") for v in inside} & OTHER, case.name
        assert made.left or not amp.widen(made.model).changed, case.name
