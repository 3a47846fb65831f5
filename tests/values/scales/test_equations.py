"""What ties the exponents of a model's values together: through operators, graphs and constants."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest

from amp_rewrite.graph.infer import infer
from amp_rewrite.rewriting.read_source import read_source
from amp_rewrite.values.scales.call import System
from amp_rewrite.values.scales.equations import scale_system
from amp_rewrite.values.scales.solve import solve

HEAD = '<ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1]>'
FRONT = "w = Constant<value_float = 2.0>() v = Mul(x, w) "
BEHIND = " u = Constant<value_float = 2.0>() z = Mul(y, u)"


def system_of(text: str) -> System:
    flat = read_source(onnx.parser.parse_model(text), inline_functions=False)
    return scale_system(flat, infer(flat))


def exponents_of(
    body: str, given: str = "float[2,4] x", shape: str = "float[2,4] z"
) -> dict[str, int]:
    """Return the exponents, by name, if `v` has to be at most 2^-2 of what it is."""
    system = system_of(f"{HEAD} m ({given}) => ({shape}) {{ {FRONT}{body}{BEHIND} }}")
    names = system.flat.value_names
    found = solve(system, {names.index("v"): -2.0})
    named: dict[str, int] = {}
    for element, exponent in found.exponents.items():
        named[names[system.value_of(element)]] = exponent
    return named


@pytest.mark.parametrize(
    "body",
    [
        "y = Relu(v)",
        "y = LeakyRelu(v)",
        "y = Neg(v)",
        "y = Abs(v)",
        "y = Identity(v)",
        "y = Transpose<perm = [0, 1]>(v)",
        "y = Add(v, v)",
        "y = Sum(v, v, v)",
        "y = Max(v, v)",
        "y = Mean(v, v)",
        "y = ReduceMean<keepdims = 1>(v)",
        "y = ReduceSum<keepdims = 1>(v)",
        "y = ReduceMax<keepdims = 1>(v)",
        "y = ReduceL1<keepdims = 1>(v)",
        "y = ReduceL2<keepdims = 1>(v)",
        "y = Concat<axis = 0>(v, v)",
        "b = Greater(v, v) y = Where(b, v, v)",
        "d = Cast<to = 11>(v) y = Cast<to = 1>(d)",
        "y = CastLike(v, x)",
        "y = Dropout(v)",
        "k = Constant<value_ints = [0]>() y = CumSum(v, k)",
    ],
)
def test_what_is_homogeneous_has_one_exponent_on_both_sides(body: str):
    found = exponents_of(body)
    assert (found["v"], found["y"], found["w"], found["u"]) == (-2, -2, -2, 2)


@pytest.mark.parametrize(
    ("body", "exponent"),
    [
        ("y = Mul(v, v)", -4),
        ('y = Einsum<equation = "ij,ij->ij">(v, v)', -4),
        ("p = Constant<value_float = 2.0>() y = Pow(v, p)", -4),
        ("p = Constant<value_float = 3.0>() y = Pow(v, p)", -6),
        ("y = Sqrt(v)", -1),
        ("y = Reciprocal(v)", 2),
        ("s = Mul(v, v) y = Sqrt(s)", -2),
        ("r = Relu(v) s = Mul(r, v) t = Mul(s, r) y = Relu(t)", -6),
    ],
)
def test_powers_multiply_exponents(body: str, exponent: int):
    found = exponents_of(body)
    assert (found["v"], found["y"], found["u"]) == (-2, exponent, -exponent)


def test_a_root_needs_an_even_exponent():
    system = system_of(f"{HEAD} m (float[2] x) => (float[2] z) {{ {FRONT} y = Sqrt(v) {BEHIND} }}")
    found = solve(system, {system.flat.value_names.index("v"): -3.0})
    assert found.exponents[system.flat.value_names.index("v")] == -4


@pytest.mark.parametrize(
    "body",
    [
        "y = Softmax(v)",
        "y = Sigmoid(v)",
        "y = Tanh(v)",
        "y = Exp(v)",
        "y = Erf(v)",
        "y = Elu(v)",
        "y = HardSigmoid(v)",
        "y = com.microsoft.Gelu(v)",
        "y = Floor(v)",
        "i = Cast<to = 7>(v) y = Cast<to = 1>(i)",
        "p = Constant<value_float = 2.5e-1>() y = Pow(v, p)",
        "y = Add(v, x)",
        "y = Pow(v, v)",
        "y = CumProd(v, x)",
    ],
)
def test_what_does_not_scale_keeps_its_input_as_it_is(body: str):
    assert exponents_of(body) == {}


@pytest.mark.parametrize(
    ("body", "more"),
    [
        ("b = Constant<value_float = 3.0>() y = Add(v, b)", {"b": -2}),
        ("b = Constant<value_float = 3.0>() y = Sub(b, v)", {"b": -2}),
        ("b = Constant<value_float = 3.0>() y = Clip(v, b, b)", {"b": -2}),
        ("b = Constant<value_float = 3.0>() c = Less(v, b) y = Where(c, v, b)", {"b": -2}),
        ("b = Constant<value_float = 3.0>() t = Identity(b) y = Add(v, t)", {"b": -2, "t": -2}),
    ],
)
def test_constants_that_are_added_or_compared_move_along(body: str, more: dict[str, int]):
    found = exponents_of(body)
    assert found["y"] == -2
    assert {name: found[name] for name in more} == more


B, C, D, E = (
    f"{name} = Constant<value_floats = [{number}, 2.0, 3.0, 4.0]>() "
    for name, number in zip("bcde", (1.0, 5.0, 6.0, 7.0), strict=True)
)
FOUR = B + C + D + E
SHARES = "f = LpNormalization(v) t = Transpose<perm = [1, 0]>(f)"


@pytest.mark.parametrize(
    ("body", "more"),
    [
        (f"{B} {SHARES} y = Gemm(v, t, b)", {"b": -2}),
        (f"{B} {SHARES} y = com.microsoft.FusedGemm(v, t, b)", {"b": -2}),
        (f'{B} {SHARES} y = com.microsoft.FusedGemm<activation = "Relu">(v, t, b)', {"b": -2}),
        (f"{B} {C} q = QuantizeLinear(v, b) r = DequantizeLinear(q, c) y = Add(r, v)",
         {"b": -2, "c": -2}),
        ("q, s, o = DynamicQuantizeLinear(v) y = DequantizeLinear(q, s)",
         {"s": -2}),
        (f"{C} r = com.microsoft.GatherBlockQuantized(n, n, c) y = Add(r, v)", {"c": -2}),
        (f"{B} {C} r = com.microsoft.MatMulNBits<K = 4, N = 4>(v, n, c, , , b) y = Add(r, v)",
         {"b": -2, "c": 0}),
        (f"{FOUR} r = BatchNormalization(v, b, c, d, e) y = Add(r, v)",
         {"b": -2, "c": -2, "d": -2, "e": -4}),
        (f"{FOUR} r, o, p, y = com.microsoft.SkipLayerNormalization(v, b, c, d, e)",
         {"b": -2, "c": 0, "d": 0, "e": -2}),
        (f"{FOUR} r, o, p, q = com.microsoft.SkipLayerNormalization(v, b, c, d, e) "
         "y = Add(r, v)", {"b": -2, "c": -2, "d": -2, "e": -2}),
        (f"{FOUR} r, o, p, q = "
         "com.microsoft.SkipSimplifiedLayerNormalization(v, b, c, d) y = Add(r, v)",
         {"b": -2, "c": -2, "d": -2}),
        (f"{B} r = com.microsoft.BiasAdd(v, b, v) y = Identity(r)", {"b": -2}),
        (f"{B} {C} r = com.microsoft.GroupNorm(v, b, c) y = Add(r, v)", {"b": -2, "c": -2}),
        (f"{B} {C} r = GroupNormalization<num_groups = 1>(v, b, c) y = Add(r, v)",
         {"b": -2, "c": -2}),
    ],
)  # fmt: skip
def test_what_goes_with_data_moves_along(body: str, more: dict[str, int]):
    found = exponents_of(body, "float[2,4] x, uint8[4,4] n", "float[] z")
    assert found["y"] == -2
    assert {name: found.get(name, 0) for name in more} == more


@pytest.mark.parametrize(
    "body",
    [
        f'{B} {SHARES} y = com.microsoft.FusedGemm<activation = "Tanh">(v, t, b)',
        f"{B} y = com.microsoft.GroupNorm<activation = 1>(v, b, b)",
        f"{B} h, y = com.microsoft.SkipLayerNormalization(v, v, b, b)",
        f"{B} y, m, o = BatchNormalization<training_mode = 1>(v, b, b, b, b)",
        "i = CastLike(v, n) y = Cast<to = 1>(i)",
        f"{B} y, m = BatchNormalization(v, b, b, b, b)",
        'y = ScatterND<reduction = "mul">(v, n, v)',
        'y = Resize<coordinate_transformation_mode = "tf_crop_and_resize">(v, r, r)',
    ],
)
def test_what_one_attribute_or_reader_makes_nonlinear_keeps_its_input(body: str):
    given = "float[2,4] x, int64[2,1] n, float[4] r"
    assert exponents_of(body, given, "float[] z") == {}


def test_a_comparison_with_two_data_leaves_them_one_exponent_and_the_truth_none():
    assert exponents_of("b = Greater(v, v) y = Cast<to = 1>(b)") == {"v": -2, "w": -2}


def test_an_argmax_does_not_mind():
    assert exponents_of("i = ArgMax(v) y = Cast<to = 1>(i)") == {"v": -2, "w": -2}


NORMS = [
    "s = Constant<value_floats = [1.0, 2.0, 3.0, 4.0]>() y = LayerNormalization(v, s)",
    "s = Constant<value_floats = [1.0, 2.0, 3.0, 4.0]>() y = SimplifiedLayerNormalization(v, s)",
    "y = LpNormalization(v)",
    "p = Constant<value_float = 2.0>() a = Pow(v, p) m = ReduceMean(a) "
    "e = Constant<value_float = 1.0e-6>() n = Add(m, e) r = Sqrt(n) y = Div(v, r)",
    "a = Mul(v, v) m = ReduceMean(a) e = Constant<value_float = 1.0e-6>() n = Add(e, m) "
    "r = Sqrt(n) i = Reciprocal(r) y = Mul(i, v)",
    "h = ReduceMean(v) d = Sub(v, h) a = Mul(d, d) m = ReduceMean(a) "
    "e = Constant<value_float = 1.0e-6>() n = Add(e, m) p = Constant<value_float = -0.5>() "
    "r = Pow(n, p) y = Mul(d, r)",
]


@pytest.mark.parametrize("body", NORMS)
def test_behind_a_norm_nothing_is_scaled(body: str):
    found = exponents_of(body)
    assert (found["v"], found.get("y", 0), found.get("e", -4)) == (-2, 0, -4)


@pytest.mark.parametrize(
    ("body", "default"),
    [
        (NORMS[0], 1e-5),
        (f"{B} {C} y = com.microsoft.SkipLayerNormalization(v, v, b, c)", 1e-12),
        (f"{FOUR} y = BatchNormalization(v, b, c, d, e)", 1e-5),
    ],
)
def test_the_epsilon_of_a_fused_norm_is_an_attribute_that_moves_along(body: str, default: float):
    system = system_of(f"{HEAD} m (float[2,4] x) => (float[2,4] z) {{ {FRONT}{body}{BEHIND} }}")
    (attribute,) = system.attributes
    assert (attribute.name, attribute.ratio) == ("epsilon", 2)
    assert attribute.default == pytest.approx(default)


@pytest.mark.parametrize(
    ("opset", "body", "names"),
    [
        (10, "y = Clip<min = -1.0, max = 2.0>(v)", {"min", "max"}),
        (10, "y = Clip<max = 2.0>(v)", {"max"}),
        (18, "y = Clip(v)", set()),
        (10, "y = Pad<pads = [0, 1, 0, 1], value = 3.0>(v)", {"value"}),
        (10, "y = Pad<pads = [0, 1, 0, 1]>(v)", set()),
        (18, "y = ThresholdedRelu(v)", {"alpha"}),
        (18, "k = Shape(v) f = ConstantOfShape(k) y = Add(v, f)", {"value"}),
        (18, "y = Shrink(v)", {"lambd", "bias"}),
    ],
)
def test_thresholds_and_bounds_that_are_attributes_move_along(
    opset: int, body: str, names: set[str]
):
    text = f"{HEAD} m (float[2,4] x) => (float[] z) {{ {FRONT}{body}{BEHIND} }}"
    text = text.replace("18", str(opset)).replace("value_float = 2.0", "value = float {2.0}")
    system = system_of(text)
    assert {(a.name, a.ratio) for a in system.attributes} == {(name, 1) for name in names}
    find, number = system.exponents.find, system.flat.value_names.index
    assert {find(a.element) for a in system.attributes} <= {find(number("v"))}
    assert find(number("y")) == find(number("v"))


def test_who_reads_the_deviation_of_a_norm_keeps_its_input_as_it_is():
    body = (
        "s = Constant<value_floats = [1.0, 2.0, 3.0, 4.0]>() "
        "n, mean, dev = LayerNormalization(v, s) y = Mul(n, dev)"
    )
    assert exponents_of(body) == {}


def test_a_residual_stream_has_one_exponent_and_weights_take_the_factors():
    body = (
        "a = Constant<value_floats = [1.0, 2.0, 3.0, 4.0]>() n = LayerNormalization(v, a) "
        "k = Constant<value_floats = [1.0, 2.0, 3.0, 5.0]>() m = Mul(n, k) "
        "y = Add(v, m)"
    )
    found = exponents_of(body)
    assert found == {"w": -2, "v": -2, "m": -2, "k": -2, "y": -2, "u": 2}


def test_scores_take_what_queries_have_from_keys():
    body = (
        "q = Mul(v, w) t = Transpose<perm = [1, 0]>(v) s = MatMul(q, t) "
        "p = Softmax(s) y = MatMul(p, v)"
    )
    found = exponents_of(body)
    assert (found["v"], found["q"], found.get("s", 0)) == (-2, 2, 0)


def test_a_function_of_the_model_scales_nothing():
    text = f"""{HEAD} m (float[2,4] x) => (float[2,4] z) {{ {FRONT} y = my.f(v) {BEHIND} }}
    <domain: "my", opset_import: ["" : 18]> f (a) => (b) {{ b = Relu(a) }}"""
    text = text.replace('"com.microsoft" : 1', '"com.microsoft" : 1, "my" : 1')
    system = system_of(text)
    assert not solve(system, {system.flat.value_names.index("v"): -2.0}).exponents


def test_a_custom_operator_scales_nothing():
    text = f"{HEAD} m (float[2,4] x) => (float[2,4] z) {{ {FRONT} y = my.op(v) {BEHIND} }}"
    system = system_of(text.replace('"com.microsoft" : 1', '"com.microsoft" : 1, "my" : 1'))
    assert not solve(system, {system.flat.value_names.index("v"): -2.0}).exponents


def test_what_a_user_preserves_scales_nothing():
    text = f"{HEAD} m (float[2,4] x) => (float[2,4] z) {{ {FRONT} y = Relu(v) {BEHIND} }}"
    flat = read_source(onnx.parser.parse_model(text), inline_functions=False)
    system = scale_system(flat, infer(flat), flat.nodes_of("Relu"))
    assert not solve(system, {flat.value_names.index("v"): -2.0}).exponents


def test_the_branches_of_an_if_have_the_exponent_of_its_result():
    body = (
        "y = If (c) <then_branch = t () => (float[2,4] a) { a = Relu(v) }, "
        "else_branch = e () => (float[2,4] b) { b = Mul(v, w) }>"
    )
    found = exponents_of(body, "float[2,4] x, bool c")
    assert (found["a"], found["b"], found["y"], found["u"]) == (-2, -2, -2, 2)


def test_an_input_of_the_model_in_one_branch_keeps_the_other_as_it_is():
    body = (
        "y = If (c) <then_branch = t () => (float[2,4] a) { a = Relu(v) }, "
        "else_branch = e () => (float[2,4] b) { b = Identity(x) }>"
    )
    assert exponents_of(body, "float[2,4] x, bool c") == {}


def test_what_a_loop_carries_has_one_exponent_at_all_of_its_places():
    body = (
        "n = Constant<value_int = 3>() k = Constant<value_int = 1>() t = Cast<to = 9>(k) "
        "y, all = Loop (n, t, v) <body = b (int64 i, bool go, float[2,4] s) "
        "=> (bool more, float[2,4] next, float[2,4] each) "
        "{ more = Identity(go) next = Add(s, v) each = Relu(next) }>"
    )
    found = exponents_of(body)
    assert [found[name] for name in ("v", "s", "next", "y", "each", "all")] == [-2] * 6


def test_a_loop_that_squares_its_state_scales_nothing():
    body = (
        "n = Constant<value_int = 3>() k = Constant<value_int = 1>() t = Cast<to = 9>(k) "
        "y = Loop (n, t, v) <body = b (int64 i, bool go, float[2,4] s) "
        "=> (bool more, float[2,4] next) { more = Identity(go) next = Mul(s, s) }>"
    )
    assert exponents_of(body) == {}


def test_the_slices_of_a_scan_have_the_exponent_of_what_they_are_cut_from():
    body = (
        "h = ReduceSum<keepdims = 0>(v, ax) "
        "last, y = Scan (h, v) <num_scan_inputs = 1, body = b (float[4] s, float[4] e) "
        "=> (float[4] next, float[4] out) { next = Add(s, e) out = Relu(next) }>"
    )
    found = exponents_of("ax = Constant<value_ints = [0]>() " + body)
    assert [found[name] for name in ("s", "e", "next", "out", "last", "y")] == [-2] * 6


def test_a_long_table_that_two_read_has_one_exponent():
    shape = "float[100,64]"
    text = f"""{HEAD} m (int64[3] ids) => (float[3,100] z) <{shape} table> {{
        v = Gather(table, ids) s = ReduceMean(v) n = Sub(v, s) l = LpNormalization(n)
        g = Constant<value_float = 2.0>() k = Mul(l, g)
        t = Transpose<perm = [1, 0]>(table) z = MatMul(k, t) }}"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.helper.make_tensor("table", 1, [100, 64], [0.5] * 6400))
    flat = read_source(model, inline_functions=False)
    system = scale_system(flat, infer(flat))
    found = solve(system, {flat.value_names.index("v"): -2.0})
    named = {flat.value_names[system.value_of(e)]: k for e, k in found.exponents.items()}
    assert (named["table"], named["v"], named["k"], named["g"]) == (-2, -2, 2, 2)


def made(text: str, *, borders: bool = False, long: int = 0) -> System:
    """Return the system of a model; `long` is the length of a constant `table`."""
    model = onnx.parser.parse_model(f"{HEAD} {text}")
    if long:
        table = onnx.helper.make_tensor("table", 1, [1, long], [0.5] * long)
        model.graph.initializer.append(table)
    flat = read_source(model, inline_functions=False)
    return scale_system(flat, infer(flat), borders=borders)


def places(system: System, *names: str) -> list[int]:
    """Return the elements of all places where values are read."""
    flat = system.flat
    read = [flat.value_names[v] if v >= 0 else "" for v in flat.inputs]
    return [flat.n_values + slot for slot, name in enumerate(read) if name in names]


def pinned(system: System) -> set[str]:
    """Return the names of the values that are not scaled."""
    union, names = system.exponents, system.flat.value_names
    return {n for v, n in enumerate(names) if union.find(v)[0] in union.pinned}


def test_a_constant_that_leaves_the_model_is_not_scaled():
    text = (
        "m (float[4] x) => (float[4] k, float[4] y) <float[4] k = {1, 2, 3, 4}> { y = Add(x, k) }"
    )
    system = made(text)
    assert pinned(system) == {"x", "k", "y"}
    assert set(places(system, "k")).isdisjoint(system.constants)
    assert set(system.exponents.pinned.values()) <= {
        "k is an output of the model", "x is an input of the model", "y is an output of the model"
    }  # fmt: skip


def test_an_input_that_a_caller_may_leave_out_is_not_scaled():
    system = made("m (float[4] x, float[4] k) => (float[4] y) <float[4] k = {1, 2, 3, 4}> "
                  "{ a = Add(x, k) y = Neg(a) }")  # fmt: skip
    assert "k" in pinned(system)


def test_borders_let_every_reader_have_another_exponent():
    body = "a = Mul(x, k) b = Add(a, a) c = Mul(b, a) y = Relu(c)"
    text = f"m (float[4] x) => (float[4] y) <float[4] k = {{1, 2, 3, 4}}> {{ {body} }}"
    system = made(text, borders=True)
    flat, names = system.flat, system.flat.value_names
    of_x, of_k = places(system, "x"), places(system, "k")
    at_a, at_b, at_c = (places(system, name) for name in "abc")
    assert system.links == [
        (names.index("x"), of_x[0]), (names.index("a"), at_a[0]), (names.index("b"), at_b[0]),
        (names.index("a"), at_a[2]), (names.index("c"), at_c[0]),
    ]  # fmt: skip
    assert system.constants == set(of_k)
    assert pinned(system) == {"x", "y"}
    find = system.exponents.find
    assert find(at_a[0]) == find(names.index("b"))
    assert [find(at_a[0])[0], find(at_a[2])[0]] != [find(names.index("a"))[0]] * 2
    factors = [(p.result, p.factors) for p in system.products]
    assert factors == [
        (names.index("a"), ((of_x[0], 1), (of_k[0], 1))),
        (names.index("c"), ((at_b[0], 1), (at_a[2], 1))),
    ]
    assert system.elements()[flat.n_values :] == sorted(
        {*of_k, *(read for _, read in system.links)}
    )


BRANCHES = """m (float[2,4] x, bool c, int64[4] i) => (float[2,4] z, int64[4] j) {
    v = Mul(x, x) y, j = If (c) <
        then_branch = t () => (float[2,4] a, int64[4] p) { a = Relu(v) p = Neg(i) },
        else_branch = e () => (float[2,4] b, int64[4] q) { b = Neg(v) q = Neg(i) }> z = Mul(y, y) }
"""


def test_what_a_user_preserves_keeps_the_graphs_inside_as_they_are():
    flat = read_source(onnx.parser.parse_model(f"{HEAD} {BRANCHES}"), inline_functions=False)
    system = scale_system(flat, infer(flat), flat.nodes_of("If"))
    assert pinned(system) >= {"a", "b", "y"}


def test_an_operator_that_is_not_known_keeps_the_graphs_inside_it_as_they_are():
    body = (
        "v = Mul(x, x) s = SequenceConstruct(v, v) u = SequenceMap (s) <body = b (float[2,4] e) "
        "=> (float[2,4] f) { g = Mul(e, e) f = Relu(g) }> k = Constant<value_int = 0>() "
        "z = SequenceAt(u, k)"
    )
    system = made(f"m (float[2,4] x) => (float[2,4] z) {{ {body} }}")
    assert pinned(system) >= {"e", "f", "g", "x", "z"}
    assert any("reads or makes it" in why for why in system.exponents.pinned.values())


LOOP = """m (float[2,4] x, float[2,4] w, int64 n, bool t, int64[4] i) => (float[] z) {
    v = Mul(x, x) u = Mul(w, w) l, k, j, all, whole = Loop (n, t, v, u, i) <body = b (int64 m,
        bool go, float[2,4] p, float[2,4] q, int64[4] r) => (bool on, float[2,4] d, float[2,4] e,
        int64[4] f, float[2,4] g, int64[4] h) { on = Identity(go) d = Neg(p) e = Relu(q)
        f = Neg(r) g = Abs(q) h = Neg(r) }> s = Mul(l, k) z = Mul(s, all) }"""


def test_each_state_of_a_loop_has_an_exponent_of_its_own():
    system = made(LOOP)
    names, find = system.flat.value_names, system.exponents.find
    one = {find(names.index(name)) for name in ("v", "p", "d", "l")}
    other = {find(names.index(name)) for name in ("u", "q", "e", "k", "g", "all")}
    assert (len(one), len(other)) == (1, 1)
    assert one != other
    assert pinned(system) == {"x", "w", "z"}


SCAN = """m (float[3,4] x, float[4] w) => (float[] z) {
    v = Mul(x, x) u = Mul(w, w) h = Mul(w, w) a, b, c = Scan (%s u, h, v) <num_scan_inputs = 1,
        body = b (float[4] p, float[4] q, float[4] r) => (float[4] d, float[4] e, float[4] f)
        { d = Neg(p) e = Mul(q, q) f = Abs(r) }> s = Mul(a, b) z = Mul(s, c) }"""


def test_states_and_slices_of_a_scan_are_tied_at_all_of_their_places():
    system = made(SCAN % "")
    names, find = system.flat.value_names, system.exponents.find
    groups = [{find(names.index(n)) for n in members} for members in ("upda", "hqeb", "vrfc")]
    assert [len(group) for group in groups] == [1, 1, 1]
    assert len(set.union(*groups)) == 3
    assert pinned(system) == {"x", "w", "z"}


def test_a_scan_of_opset_8_scales_nothing():
    text = SCAN % ", "
    model = onnx.parser.parse_model(f"{HEAD.replace('18', '8')} {text}")
    flat = read_source(model, inline_functions=False)
    system = scale_system(flat, infer(flat))
    assert pinned(system) >= {*"uvabcpqrdef"}
