"""A group that the target computes as one operator has one type."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from group_models import FORMS, Form, members, model_around, reshaped_gelu
from onnx import numpy_helper
from rewrite_text import assert_close, rewritten

import amp_rewrite as amp

NORM = FORMS["layer-normalization"]


def rewrite(model: onnx.ModelProto, precision: str = "float16", **options: object):
    return rewritten(model, precision=precision, target="cuda", **options)


def is_low(result: amp.RewriteResult, *names: str) -> set[bool]:
    """Return whether these nodes are low: one element if all agree."""
    types = {n.name: {v.dtype for v in n.variables.values()} for n in result.report.nodes}
    return {dtype != "float32" for name in names for dtype in types[name]}


@pytest.mark.share(4)
@pytest.mark.parametrize("opset", [17, 18, 21])
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", [n for n in FORMS if "normalization" in n])
def test_a_normalization_of_a_low_value_has_a_low_tail(
    name: str, precision: str, opset: int
) -> None:
    model = model_around(FORMS[name], opset)
    result = rewrite(model, precision)
    mixed_kernel = name.startswith("rms") and precision == "float16"
    assert is_low(result, "o") == {not mixed_kernel}
    assert is_low(result, "e", "s", "n", "p") == {False}
    assert_close(result, model)


def test_before_opset_17_a_kernel_takes_float16_and_gives_float32() -> None:
    model = model_around(NORM, 13)
    assert is_low(rewrite(model), *members(NORM)) == {False}
    assert is_low(rewrite(model, "bfloat16"), "t", "o") == {True}


def test_webgpu_has_no_normalization_that_takes_float16_and_gives_float32() -> None:
    model = model_around(NORM, 13)
    assert is_low(rewritten(model, target="webgpu", lists=None), "t", "o") == {True}


def test_what_follows_a_low_tail_is_no_longer_denied() -> None:
    model = model_around(NORM, behind="r = LeakyRelu(o)\ny = MatMul(r, w)")
    result = rewrite(model)
    assert is_low(result, "t", "o", "r") == {True}
    assert len(result.report.casts) == 4


@pytest.mark.share(7, each="name")
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", [n for n in FORMS if "normalization" not in n])
def test_an_activation_has_one_type(name: str, precision: str) -> None:
    model = model_around(FORMS[name])
    result = rewrite(model, precision)
    fuses_low = precision == "float16" or name == "silu"
    assert is_low(result, *members(FORMS[name])) == {fuses_low}
    assert_close(result, model)


def test_the_input_of_a_normalization_that_something_else_reads_in_float32_leaves_it_float32() -> (
    None
):
    model = model_around(NORM, behind="k = Exp(h)\nz = Add(k, o)\ny = MatMul(z, w)")
    result = rewrite(model)
    assert is_low(result, "h") == {True}
    assert is_low(result, *members(NORM)) == {False}


def test_a_float32_input_leaves_a_normalization_float32() -> None:
    result = rewrite(model_around(NORM._replace(body=f"h = Exp(f)\n{NORM.body}"), made="f"))
    assert is_low(result, *members(NORM)) == {False}


def test_the_user_may_keep_the_tail_and_then_the_input_is_float32_as_well() -> None:
    model = model_around(NORM)
    result = rewrite(model, deny_nodes=["o"])
    assert is_low(result, "h", "t", "o") == {False}
    assert is_low(result, "y") == {True}


def test_a_bias_out_of_range_keeps_the_tail_float32() -> None:
    model = model_around(NORM)
    bias = next(t for t in model.graph.initializer if t.name == "bias")
    bias.CopyFrom(numpy_helper.from_array(np.full(4, 1e6, np.float32), "bias"))
    result = rewrite(model)
    assert is_low(result, "h", "t", "o") == {False}


def test_a_low_graph_input_counts_as_a_low_input() -> None:
    model = model_around(NORM)
    del model.graph.node[0]
    model.graph.input[0].name = "h"
    result = rewrite(model, keep_io_types=False)
    assert is_low(result, "t", "o") == {True}
    assert is_low(rewrite(model), "t", "o") == {False}


def test_a_target_that_fuses_nothing_leaves_groups_to_the_lists() -> None:
    model = model_around(NORM)
    result = rewritten(model, target="schema")
    assert is_low(result, *members(NORM)) == {False}
    gelu = model_around(FORMS["gelu"])
    result = rewritten(gelu, target="schema", precision="bfloat16")
    assert is_low(result, *members(FORMS["gelu"])) == {True}


def test_a_group_inside_a_subgraph_has_one_type() -> None:
    inner = FORMS["gelu"].body.replace("h", "g").replace("g, galf", "g, half")
    text = f"""c = Greater(root, one)
        o = If(c) <
            then_branch = t () => (float[N,3,4] ot) {{
                g = MatMul(h, w)
                {inner.replace("o = Mul", "q = Mul")}
                ot = MatMul(q, w)
            }},
            else_branch = e () => (float[N,3,4] oe) {{ oe = MatMul(h, w) }}>"""
    model = model_around(FORMS["gelu"]._replace(body=text))
    low = {
        n.op: next(iter(n.variables.values())).dtype
        for n in rewrite(model, "bfloat16").report.nodes
        if n.scope and n.variables
    }
    assert low["Erf"] == low["Div"] == low["Add"] == low["Mul"] == "float32"
    assert low["MatMul"] == "bfloat16"


def test_casts_do_not_move_to_where_they_would_change_a_group() -> None:
    result = rewrite(
        model_around(
            NORM._replace(body=f"i = Transpose(f)\nh = Transpose(i)\n{NORM.body}"), made="f"
        )
    )
    assert is_low(result, "i", "h", "t", "o") == {True}


def test_the_report_says_which_group_a_node_belongs_to() -> None:
    model = model_around(NORM)
    result = rewrite(model)
    words = "part of LayerNormalization from m to o"
    assert amp.explain(result, "o").endswith(words)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_group_that_a_deny_list_cuts_out_follows_its_low_neighbours(precision: str) -> None:
    model = reshaped_gelu()
    result = rewrite(model, precision)
    fuses_low = precision == "float16"
    assert is_low(result, *members(FORMS["fast-gelu-power"])) == {fuses_low}
    assert is_low(result, "f", "z", "y") == {True}
    assert_close(result, model)


def test_a_group_that_no_cast_may_precede_reads_what_moves_its_input_in_float32() -> None:
    result = rewrite(reshaped_gelu(), "bfloat16")
    assert is_low(result, "h") == {False}
    assert amp.explain(result, "h").endswith("the input of FastGelu by Pow from a to o")


def test_a_matrix_product_stays_low_in_front_of_a_group_that_no_cast_may_precede() -> None:
    result = rewrite(model_around(FORMS["fast-gelu-power"]), "bfloat16")
    assert is_low(result, "h") == {True}
    assert is_low(result, *members(FORMS["fast-gelu-power"])) == {False}


def test_a_group_whose_result_nothing_low_reads_does_not_follow_its_input() -> None:
    form = FORMS["fast-gelu-power"]
    reshaped = Form(f"h = Reshape(f, again)\n{form.body}", form.constants, form.operator)
    constants = f"{form.constants}, int64[3] again = {{-1, 3, 4}}"
    model = model_around(reshaped._replace(constants=constants), behind="y = Exp(o)", made="f")
    assert is_low(rewrite(model), *members(form)) == {False}


@pytest.mark.parametrize(("shape", "with_product"), [("3,4", True), ("2,3,4", True), (None, False)])
def test_a_bias_stays_with_a_matrix_product_that_becomes_a_gemm(
    shape: str | None, with_product: bool
) -> None:
    model = model_around(FORMS["biased-gelu"])
    if shape is not None:
        dims = [int(length) for length in shape.split(",")]
        for name in ("h", "biased"):
            info = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims)
            model.graph.value_info.append(info)
        for end in (model.graph.input[0], model.graph.output[0]):
            end.CopyFrom(onnx.helper.make_tensor_value_info(end.name, 1, dims))
    assert is_low(rewrite(model, "bfloat16"), "biased") == {with_product}


def test_the_input_of_a_normalization_that_something_else_reads_low_leaves_the_tail_low() -> None:
    model = model_around(NORM, behind="k = MatMul(h, w)\nz = Add(k, o)\ny = MatMul(z, w)")
    assert is_low(rewrite(model), "h", "k", "t", "o") == {True}


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_a_check_finds_the_groups_of_a_rewritten_model_whole(precision: str) -> None:
    made = rewrite(model_around(NORM), precision)
    assert amp.check(made.model, target="cuda", run=False).ok


def test_where_nothing_may_be_float32_a_group_with_a_tail_is_low() -> None:
    result = amp.rewrite(model_around(NORM), target="cuda", only="float16")
    assert is_low(result, *members(NORM)) == {True}
