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
