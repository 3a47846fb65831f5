"""Models in other float types, read as the float32 models that they stand for."""

from __future__ import annotations

from pathlib import Path

import low_models
import numpy as np
import onnx
import pytest
from backend_cases import all_cases
from onnx import TensorProto, numpy_helper
from rewrite_text import lines, parse

import amp_rewrite as amp
from amp_rewrite.errors import AmpError, GraphError, OptionError
from amp_rewrite.graph.elements import element
from amp_rewrite.graph.infer import infer
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.rewriting.mend import check_bindings

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


@pytest.mark.parametrize("part", range(4))
def test_the_backend_cases_have_a_float32_form_that_has_none(part: int) -> None:
    for case in all_cases()[part::4]:
        try:
            made = amp.widen(case.model)
        except AmpError:
            continue
        if not made.changed:
            continue
        flat = read_flat(amp.to_proto(made.model))
        types = infer(flat)
        check_bindings(flat, types)
        if not made.left:
            inside = [v for v in flat.outputs if v not in flat.main.outputs]
            assert not {element(types[v] or "") for v in inside} & OTHER, case.name
        assert made.left or not amp.widen(made.model).changed, case.name
