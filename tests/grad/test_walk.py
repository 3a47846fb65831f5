from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from gradient_table import NEWEST, Constant, Row, check_difference, check_float32, dense
from releases import needs

from amp_rewrite import to_proto
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.grad import Builder, GradientError, IndexedSlices, gradients
from amp_rewrite.grad.prepare import prepare
from amp_rewrite.grad.rules import DIFFERENTIABLE, FORMULAS, RULES, merge
from amp_rewrite.graph.step_part import SOURCE_KEY
from amp_rewrite.graph.traits import Trait, having


def parse(text: str) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(text))


def model_of(
    body: str, *, initializers: str = "", opset: int = 18, functions: str = ""
) -> ir.Model:
    return parse(
        f'<ir_version: 8, opset_import: ["": {opset}, "local": 1]> g {body[: body.index("{")]}'
        f"{initializers} {body[body.index('{') :]} {functions}"
    )


def named(model: ir.Model, name: str) -> ir.Value:
    values = {v.name: v for v in (*model.graph.inputs, *model.graph.initializers.values())}
    values |= {v.name: v for node in model.graph for v in node.outputs}
    return values[name]


def prepared(model: ir.Model) -> Builder:
    prepare(model)
    return Builder(model)


def differentiate(model: ir.Model, wrt: Sequence[str]) -> Builder:
    """Add outputs g_<name>: the gradients of the sum of the first output."""
    b = prepared(model)
    loss = model.graph.outputs[0]
    found = gradients(b, {loss: b.ones_like(loss)}, [named(model, name) for name in wrt])
    for name, gradient in zip(wrt, found, strict=True):
        assert gradient is not None
        output = b.op("Identity", dense(b, gradient))
        output.name = f"g_{name}"
        model.graph.outputs.append(output)
    onnx.checker.check_model(to_proto(model), full_check=True)
    return b


def run(model: ir.Model, feeds: dict[str, Any]) -> dict[str, np.ndarray]:
    session: Any = onnxruntime.InferenceSession(
        to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def ops(model: ir.Model) -> list[str]:
    return [n.op_type for n in model.graph if (n.name or "").startswith("gradient/")]


def close(found: np.ndarray, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=4 * FLOAT32.rtol, atol=4 * FLOAT32.atol)


BRANCHES = """(float[N, 4] x, float[4] w, bool c) => (float[N, 4] y) {
    h = Mul(x, w)
    y = If (c) <
        then_branch = then () => (float[N, 4] a) { q = Add(h, w)  a = Sigmoid(q) },
        else_branch = other () => (float[N, 4] d) { d = Mul(h, h) }
    >
}"""


@pytest.mark.parametrize("taken", [True, False])
def test_if_passes_gradients_through_the_branch_that_is_taken(taken: bool):
    model = model_of(BRANCHES)
    differentiate(model, ["x", "w"])
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((3, 4)).astype("f"), rng.standard_normal(4).astype("f")
    found = run(model, {"x": x, "w": w, "c": np.array(taken)})
    s = 1 / (1 + np.exp(-(x * w + w)))
    to_h = s * (1 - s) if taken else 2 * x * w
    close(found["g_x"], to_h * w)
    close(found["g_w"], (to_h * x + (to_h if taken else 0)).sum(0))


def test_a_value_that_one_branch_does_not_use_gets_zeros_from_it():
    text = BRANCHES.replace("Mul(h, h)", "Mul(h, w)").replace("Add(h, w)", "Identity(h)")
    model = model_of(text.replace("Mul(x, w)", "Neg(x)"))
    differentiate(model, ["w"])
    feeds = {"x": np.ones((3, 4), "f"), "w": np.ones(4, "f")}
    close(run(model, {**feeds, "c": np.array(True)})["g_w"], np.zeros(4))
    close(run(model, {**feeds, "c": np.array(False)})["g_w"], np.full(4, -3))


def test_a_gather_inside_a_branch_gives_a_dense_gradient():
    model = model_of(
        """(float[5, 2] table, int64[N] i, bool c) => (float[N, 2] y) {
        y = If (c) <
            then_branch = t () => (float[N, 2] a) { a = Gather(table, i) },
            else_branch = e () => (float[N, 2] b) { k = Gather(table, i)  b = Neg(k) }
        > }"""
    )
    differentiate(model, ["table"])
    table = np.ones((5, 2), "f")
    found = run(model, {"table": table, "i": np.array([1, 3, 3]), "c": np.array(False)})
    close(found["g_table"][:, 0], [0, -1, 0, -2, 0])


def test_nested_branches_are_differentiated():
    model = model_of(
        """(float[3] x, bool c) => (float[3] y) {
        y = If (c) <
            then_branch = t () => (float[3] a) {
                a = If (c) <
                    then_branch = tt () => (float[3] p) { p = Exp(x) },
                    else_branch = te () => (float[3] q) { q = Neg(x) }
                > },
            else_branch = e () => (float[3] b) { b = Abs(x) }
        > }"""
    )
    differentiate(model, ["x"])
    x = np.array([-1, 0.5, 2], "f")
    close(run(model, {"x": x, "c": np.array(True)})["g_x"], np.exp(x))
    close(run(model, {"x": x, "c": np.array(False)})["g_x"], np.sign(x))


def test_a_model_local_function_is_differentiated_through_its_body():
    model = model_of(
        """(float[N, 3] x, float[3] w) => (float[N, 3] y) {
            h = local.scaled <alpha = 2.0> (x, w)
            y = local.scaled <alpha = 3.0> (h, w)
        }""",
        functions="""<opset_import: ["": 18], domain: "local">
        scaled <alpha> (a, b) => (r) {
            k = Constant <value_float: float = @alpha> ()
            t = Mul(a, k)
            r = Add(t, b)
        }""",
    )
    differentiate(model, ["x", "w"])
    assert "y" in {o.name for o in model.graph.outputs}
    found = run(model, {"x": np.ones((2, 3), "f"), "w": np.ones(3, "f")})
    close(found["g_x"], np.full((2, 3), 6))
    close(found["g_w"], np.full(3, 2 * (1 + 3)))


FIRST_QUERY_MASKED = [[False] * 5, [True, False, True, True, False], [True] * 5]
MASKED = "a row that is masked altogether"
FUNCTIONS = [
    Row(
        "RotaryEmbedding",
        ((1, 2, 3, 4), (10, 2), (10, 2), Constant([[0, 1, 2]])),
        opset=23,
        reference=True,
    ),
    Row(
        "RotaryEmbedding",
        ((1, 3, 8), (1, 3, 2), (1, 3, 2)),
        {"num_heads": 2, "interleaved": 1},
        opset=24,
        reference=True,
    ),
    Row("CenterCropPad", ((5, 6), Constant([3, 8]))),
    Row("Attention", ((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4)), opset=23, reference=True),
    Row(
        "Attention",
        ((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4)),
        {"is_causal": 1},
        opset=NEWEST,
        reference=True,
    ),
    Row(
        "Attention",
        ((1, 3, 8), (1, 5, 8), (1, 5, 8)),
        {"q_num_heads": 2, "kv_num_heads": 2},
        opset=23,
        reference=True,
        lengths="of 3-D inputs without lengths onnx infers that the last length of y is 0",
    ),
    Row(
        "Attention",
        ((1, 4, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4), (3, 5)),
        {"softcap": 2.0, "scale": 0.3},
        opset=24,
        reference=True,
        note="grouped queries, a mask",
    ),
    Row(
        "Attention",
        ((2, 3, 16), (2, 5, 8), (2, 5, 8), None, (2, 2, 2, 4), (2, 2, 2, 4)),
        {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": 1},
        opset=23,
        outputs=3,
        reference=True,
        lengths="as above",
        note="a past",
    ),
    Row(
        "Attention",
        (*[(2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4)], None, None, None, Constant([4, 5])),
        opset=24,
        reference=True,
        note="padded keys",
    ),
    *(
        Row(
            "Attention",
            ((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4), Constant(FIRST_QUERY_MASKED)),
            attributes,
            opset=opset,
            reference=True,
            note=MASKED,
        )
        for opset in (23, NEWEST)
        for attributes in ({}, {"is_causal": 1})
    ),
]


@pytest.mark.share(9)
@pytest.mark.parametrize("row", FUNCTIONS, ids=str)
@pytest.mark.parametrize("static", [True, False])
def test_an_operator_without_a_rule_is_differentiated_through_its_definition(
    row: Row, static: bool
):
    if row.note == MASKED:
        needs("onnx", (1, 23), "makes NaN of it in its reference evaluator")
    check_difference(row, static=static or bool(row.lengths))
    check_float32(row)


def test_two_gathers_of_one_table_give_slices_whose_indices_repeat():
    model = model_of(
        """(float[5, 2] table, int64[N] i, int64[M] j) => (float y) {
        a = Gather(table, i)
        b = Gather(table, j)
        p = ReduceSum <keepdims = 0> (a)
        q = ReduceSum <keepdims = 0> (b)
        y = Sub(p, q)
        }"""
    )
    b = prepared(model)
    y = model.graph.outputs[0]
    [found] = gradients(b, {y: b.ones_like(y)}, [named(model, "table")])
    assert isinstance(found, IndexedSlices)
    names = ("values", "indices", "dense_shape")
    for name, value in zip(names, found, strict=True):
        output = b.op("Identity", value)
        output.name = name
        model.graph.outputs.append(output)
    feeds = {"i": np.array([0, -1, 0]), "j": np.array([2])}
    got = run(model, {"table": np.zeros((5, 2), "f"), **feeds})
    assert sorted(got["indices"].tolist()) == [0, 0, 2, 4]
    assert got["dense_shape"].tolist() == [5, 2]
    assert got["values"].shape == (4, 2)


@pytest.mark.parametrize("opset", [16, 18])
def test_a_table_that_is_used_otherwise_as_well_gets_one_dense_gradient(opset: int):
    model = model_of(
        """(float[5, 2] table, int64[N] i) => (float y) {
        a = Gather(table, i)
        p = ReduceSum <keepdims = 0> (a)
        t = Mul(table, table)
        q = ReduceSum <keepdims = 0> (t)
        y = Add(p, q)
        }""",
        opset=opset,
    )
    b = prepared(model)
    y = model.graph.outputs[0]
    [found] = gradients(b, {y: b.ones_like(y)}, [named(model, "table")])
    assert isinstance(found, ir.Value)
    found.name = "g"
    model.graph.outputs.append(found)
    got = run(model, {"table": np.ones((5, 2), "f"), "i": np.array([1, 1, -1])})
    close(got["g"][:, 0], [2, 4, 2, 2, 3])


def test_equal_symbolic_lengths_need_no_reduction():
    model = model_of("(float[N, M] x, float[N, M] w) => (float[N, M] y) { y = Mul(x, w) }")
    differentiate(model, ["x", "w"])
    assert "ReduceSum" not in ops(model)


def test_lengths_that_cancel_in_a_reshape_are_known_to_be_equal():
    model = model_of(
        """(float[batch, seq, 8] x, float[8] w) => (float[batch, seq, 8] y) {
        h = Mul(x, w)
        heads = Reshape(h, apart)
        swapped = Transpose <perm = [0, 2, 1, 3]> (heads)
        back = Transpose <perm = [0, 2, 1, 3]> (swapped)
        joined = Reshape(back, whole)
        y = Add(joined, h)
        }""",
        initializers="<int64[4] apart = {0, -1, 2, 4}, int64[3] whole = {0, -1, 8}>",
    )
    differentiate(model, ["w"])
    assert list(named(model, "heads").shape or ()) == ["batch", "seq", 2, 4]
    assert ops(model).count("ReduceSum") == 1
    x = np.ones((2, 3, 8), "f")
    close(run(model, {"x": x, "w": np.ones(8, "f")})["g_w"], np.full(8, 12))


def test_gradients_that_nobody_asked_for_leave_no_nodes_behind():
    model = model_of(
        """(float[N, 3] x, float[3] w) => (float[N, 3] y) {
        h = Div(x, w)
        y = Pow(h, x)
        }"""
    )
    b = prepared(model)
    y = model.graph.outputs[0]
    [found] = gradients(b, {y: b.ones_like(y)}, [named(model, "w")])
    assert isinstance(found, ir.Value)
    unused = [
        n.name
        for n in model.graph
        if n is not found.producer() and not any(v.uses() for v in n.outputs) and n.name
    ]
    assert unused == []
    assert all(v.uses() for v in model.graph.initializers.values())


def test_what_no_seed_depends_on_has_no_gradient():
    model = model_of(
        """(float[3] x, float[3] w, float[3] z) => (float[3] y) {
        s = Floor(w)
        t = Mul(z, s)
        y = Add(x, s)
        }"""
    )
    b = prepared(model)
    y = model.graph.outputs[0]
    found = gradients(b, {y: b.ones_like(y)}, [named(model, name) for name in "xwz"])
    assert found[0] is not None
    assert found[1:] == [None, None]


def test_values_inside_the_graph_have_gradients_too():
    model = model_of(
        """(float[3, 3] x) => (float y) {
        d = Det(x)
        f = Floor(x)
        p = Mul(d, f)
        y = ReduceSum <keepdims = 0> (p)
        }"""
    )
    differentiate(model, ["d", "f", "p"])
    found = run(model, {"x": 2.5 * np.eye(3, dtype="f")})
    close(found["g_d"], 6)
    close(found["g_f"], np.full((3, 3), 2.5**3))
    close(found["g_p"], np.ones((3, 3)))


@pytest.mark.parametrize(
    ("op", "function"),
    [("Sign", np.sign), ("Floor", np.floor), ("Ceil", np.ceil), ("Round", np.round)],
)
@pytest.mark.parametrize("opset", [16, 18])
def test_an_operator_of_steps_is_a_factor_without_a_gradient_of_its_own(op, function, opset):
    text = f"(float[4] x) => (float[4] y) {{ s = {op}(x)  y = Mul(s, x) }}"
    model = model_of(text, opset=opset)
    differentiate(model, ["x"])
    x = np.array([1.4, -2.6, 0.2, -0.7], "f")
    close(run(model, {"x": x})["g_x"], function(x))


def test_a_trainable_exponent_is_not_taken_for_a_constant():
    model = model_of(
        "(float[3] x) => (float[3] y) { y = Pow(x, p) }", initializers="<float p = {3.0}>"
    )
    differentiate(model, ["p", "x"])
    x = np.array([1, 2, 3], "f")
    close(run(model, {"x": x})["g_p"], (x**3 * np.log(x)).sum())


def test_gradients_are_added_in_the_widest_type():
    model = model_of(
        """(float16[3] x) => (float[3] y) {
        a = Cast <to = 1> (x)
        b = Exp(x)
        d = Cast <to = 1> (b)
        y = Add(a, d)
        }"""
    )
    differentiate(model, ["x"])
    assert named(model, "g_x").dtype is ir.DataType.FLOAT16
    x = np.array([0, 1, -1], np.float16)
    np.testing.assert_allclose(run(model, {"x": x})["g_x"], 1 + np.exp(x), rtol=2e-3)


@pytest.mark.parametrize("mode", ["training", "fed"], ids=["in training", "in a mode that is fed"])
def test_dropout_passes_what_it_kept(mode: str):
    training = ", bool t" if mode == "fed" else ""
    constant = "<float r = {0.4}>" if mode == "fed" else "<float r = {0.4}, bool t = {1}>"
    model = model_of(
        f"(float[N, 50] x{training}) => (float[N, 50] y) {{ y = Dropout <seed = 3> (x, r, t) }}",
        initializers=constant,
    )
    differentiate(model, ["x"])
    x = np.full((4, 50), 2, "f")
    feeds: dict[str, Any] = {"x": x}
    on = run(model, feeds | ({"t": np.array(True)} if training else {}))
    close(on["g_x"], on["y"] / 2)
    assert 0 < np.count_nonzero(on["g_x"]) < x.size
    if training:
        off = run(model, feeds | {"t": np.array(False)})
        close(off["g_x"], np.ones_like(x))


def test_a_missing_rule_is_refused_with_the_node_and_a_remedy():
    model = model_of("(float[3, 3] x) => (float y) { [det] y = Det(x) }")
    b = prepared(model)
    y = model.graph.outputs[0]
    with pytest.raises(GradientError, match=r"'det' \(Det\).*no gradient rule.*var_list"):
        gradients(b, {y: b.ones_like(y)}, [named(model, "x")])


def test_a_failed_walk_leaves_no_nodes_behind():
    model = model_of("(float[3, 3] x) => (float y) { d = Det(x)  e = Exp(d)  y = Mul(e, d) }")
    b = prepared(model)
    y = model.graph.outputs[0]
    seed, before = b.ones_like(y), list(model.graph)
    with pytest.raises(GradientError, match="no gradient rule"):
        gradients(b, {y: seed}, [named(model, "x")])
    assert list(model.graph) == before
    assert SOURCE_KEY not in b.neg(y).producer().metadata_props


def test_an_operator_that_stops_a_gradient_is_named_with_the_reason_and_others_go_on():
    model = model_of(
        """(float[3, 3] x, bool c) => (float y) {
        [det] d = Det(x)
        e = If (c) <
            then_branch = t () => (float a) { [inner] i = Det(x)  s = ReduceSum <keepdims = 0> (x)
                a = Add(i, s) },
            else_branch = o () => (float z) { z = ReduceMax <keepdims = 0> (x) }
        >
        y = Mul(d, e)
        }"""
    )
    b = prepared(model)
    y = model.graph.outputs[0]
    stops: dict[ir.Node, str] = {}
    [found] = gradients(b, {y: b.ones_like(y)}, [named(model, "x")], stops=stops)
    assert isinstance(found, ir.Value)
    found.name = "g_x"
    model.graph.outputs.append(found)
    assert {node.name for node in stops} == {"det", "inner"}
    assert {*stops.values()} == {"an operator has no gradient rule"}
    assert {node.graph for node in stops} >= {model.graph}
    x = 2 * np.eye(3, dtype="f")
    close(run(model, {"x": x, "c": np.array(True)})["g_x"], np.full((3, 3), 8))


def test_no_operator_has_two_rules():
    with pytest.raises(ValueError, match="two gradient rules for Add"):
        merge([{"Add": RULES["Add"]}, {"Add": RULES["Add"]}])


def test_no_operator_has_a_rule_and_none():
    assert not DIFFERENTIABLE & having(Trait.NO_GRADIENT)
    assert not RULES.keys() & FORMULAS.keys()
    # Rules of one expression are made by of_one: their formula stands in front of their row.
    functions = [rule for rule in RULES.values() if "<locals>" not in rule.__qualname__]
    assert len(functions) > 50
    assert {rule.__qualname__ for rule in functions if not (rule.__doc__ or "").strip()} == set()
