"""Groups are found in every form that exporters write, and near misses are not."""

from __future__ import annotations

import numpy as np
import pytest
from group_models import FORMS, Form, members, model_around
from onnx import helper, numpy_helper

from amp_rewrite.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, DType
from amp_rewrite.graph.build_type_graph import build_type_graph
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.values.patterns.find_groups import Group, Number, Op, Pattern, Value, find_groups
from amp_rewrite.values.patterns.library import PATTERNS


def groups_of(
    form: Form, opset: int = 17, behind: str = "y = MatMul(o, w)", low: DType | None = None
) -> list[Group]:
    return find_groups(
        build_type_graph(read_flat(model_around(form, opset, behind))), PATTERNS, low
    )


def changed(name: str, old: str, new: str) -> Form:
    """Return a form with a part of its body or its constants replaced."""
    form = FORMS[name]
    assert old in form.body + form.constants
    return form._replace(
        body=form.body.replace(old, new), constants=form.constants.replace(old, new)
    )


def groups_behind_cast(
    name: str, constant: str, stored: DType, number: float | None = None, op: str = "Cast<to = 1>"
) -> list[Group]:
    """Return the groups of a form that reads one of its constants, stored in another type."""
    form = changed(name, f"float {constant} =", "float held =")
    body = f"i = Identity(held)\n{constant} = {op}(i)\n{form.body.strip()}"
    model = model_around(form._replace(body=body))
    (tensor,) = [t for t in model.graph.initializer if t.name == "held"]
    array = numpy_helper.to_array(tensor) if number is None else np.float32(number)
    tensor.CopyFrom(numpy_helper.from_array(array.astype(stored.numpy), "held"))
    return find_groups(build_type_graph(read_flat(model)), PATTERNS)


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_found_whole(name: str, opset: int) -> None:
    (group,) = groups_of(FORMS[name], opset)
    assert len(group.nodes) == len(FORMS[name].body.strip().splitlines())
    assert (len(group.tail) > 0) == ("normalization" in name)


@pytest.mark.parametrize("name", FORMS)
def test_operands_of_sums_and_products_may_be_swapped(name: str) -> None:
    body: list[str] = []
    for line in FORMS[name].body.strip().splitlines():
        head, call, operands = line.strip().partition("Mul(" if "Mul(" in line else "Add(")
        swapped = ", ".join(reversed(operands.rstrip(")").split(", ")))
        body.append(f"{head}{call}{swapped})" if call else head)
    assert len(groups_of(FORMS[name]._replace(body="\n".join(body)))) == 1


def test_a_group_goes_on_through_what_changes_nothing() -> None:
    body = "i = Identity(h)\nb = Sigmoid(i)\na = Cast<to = 1>(b)\no = Mul(h, a)"
    (group,) = groups_of(FORMS["silu"]._replace(body=body))
    assert len(group.nodes) == 2


@pytest.mark.parametrize("stored", [FLOAT16, BFLOAT16, FLOAT64], ids=lambda d: d.name)
@pytest.mark.parametrize(
    ("name", "constant"),
    [("layer-normalization", "two"), ("rms-normalization", "two"), ("gelu", "half")],
)
def test_a_number_may_be_stored_in_another_type_behind_a_cast(
    name: str, constant: str, stored: DType
) -> None:
    """Runtimes compute such a Cast before they look for groups."""
    assert len(groups_behind_cast(name, constant, stored)) == 1


def test_a_cast_of_another_number_makes_no_group() -> None:
    assert groups_behind_cast("layer-normalization", "two", FLOAT16, number=3) == []
    assert groups_behind_cast("layer-normalization", "two", FLOAT32, op="Neg") == []


def test_a_cast_of_what_the_caller_gives_makes_no_group() -> None:
    form = changed("layer-normalization", "float two = {2.0}", "float unused = {2.0}")
    body = f"two = Cast<to = 1>(l)\n{form.body.strip()}"
    model = model_around(form._replace(body=body))
    model.graph.input.append(helper.make_tensor_value_info("l", FLOAT16.number, []))
    assert find_groups(build_type_graph(read_flat(model)), PATTERNS) == []


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("layer-normalization", "p = Pow(d, two)", "p = Pow(h, two)"),
        ("layer-normalization", "two = {2.0}", "two = {3.0}"),
        ("layer-normalization", "d = Sub(h, m)", "d = Sub(m, h)"),
        ("layer-normalization", "n = Div(d, s)", "n = Div(s, d)"),
        ("rms-normalization", "two = {2.0}", "two = {1.0}"),
        ("rms-normalization", "p = Pow(h, two)", "p = Add(h, two)"),
        ("rms-normalization", "p = Pow(h, two)", "p = Sub(h, two)"),
        ("rms-normalization", "n = Div(h, s)", "n = Div(e, s)"),
        ("gelu", "root = {1.41421354}", "root = {1.5}"),
        ("gelu", "half = {0.5}", "half = {0.25}"),
        ("gelu", "b = Mul(h, half)", "b = Mul(a, half)"),
        ("fast-gelu", "cubic = {0.044715}", "cubic = {0.05}"),
        ("fast-gelu-power", "three = {3.0}", "three = {2.0}"),
        ("silu", "o = Mul(h, a)", "o = Mul(x, a)"),
        ("quick-gelu", "float alpha = {1.702}", "float[4] alpha = {1, 1, 1, 2}"),
    ],
)
def test_a_near_miss_is_not_a_group(name: str, old: str, new: str) -> None:
    found = {group.name for group in groups_of(changed(name, old, new))}
    assert found <= {"RMSNormalization"} if name == "layer-normalization" else not found


@pytest.mark.parametrize("name", ["fast-gelu", "fast-gelu-power"])
def test_a_number_may_be_what_the_low_type_rounds_it_to_and_no_other_one(name: str) -> None:
    def stored(low: DType) -> Form:
        texts = (text.partition(" = {") for text in FORMS[name].constants.split(", "))
        rounded = (f"{key} = {{{float(low.numpy.type(n[:-1]))}}}" for key, _, n in texts)
        return FORMS[name]._replace(constants=", ".join(rounded))

    for low in (FLOAT16, BFLOAT16):
        assert len(groups_of(stored(low), low=low)) == 1
        assert groups_of(stored(low)) == []
    assert groups_of(stored(BFLOAT16), low=FLOAT16) == []


@pytest.mark.parametrize("name", ["layer-normalization", "rms-normalization"])
def test_a_mean_over_another_axis_is_not_a_group(name: str) -> None:
    body = FORMS[name].body.replace("MEAN(p)", "ReduceMean<axes = [0]>(p)")
    assert groups_of(FORMS[name]._replace(body=body)) == []


@pytest.mark.parametrize(
    ("name", "inner"), [("layer-normalization", "s"), ("gelu", "a"), ("silu", "a")]
)
def test_a_second_reader_inside_keeps_nodes_from_being_a_group(name: str, inner: str) -> None:
    assert groups_of(FORMS[name], behind=f"z = Add(o, {inner})\ny = MatMul(z, w)") == []


def test_a_normalization_without_bias_is_an_rms_normalization_of_the_difference() -> None:
    body = FORMS["layer-normalization"].body.replace("o = Add(t, bias)", "o = Relu(t)")
    (group,) = groups_of(FORMS["layer-normalization"]._replace(body=body))
    assert group.name == "RMSNormalization"
    assert len(group.nodes) == 7 - 1 + 0


BRANCHES = """b = Greater(two, eps)
    o = If(b) <
        then_branch = t () => (float[3,4] ot) {{ {inside} }},
        else_branch = e () => (float[3,4] oe) {{ oe = Identity(h) }}>"""


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (BRANCHES.format(inside="a = Sigmoid(h)\not = Mul(h, a)"), ["SiLU"]),
        ("a = Sigmoid(h)\n" + BRANCHES.format(inside="ot = Mul(h, a)"), []),
    ],
    ids=["inside", "across"],
)
def test_a_group_is_in_one_graph(body: str, names: list[str]) -> None:
    form = Form(body, "float two = {2.0}, float eps = {0.1}", "")
    assert [group.name for group in groups_of(form)] == names


def test_the_model_decides_which_overlapping_pattern_counts() -> None:
    (group,) = groups_of(FORMS["layer-normalization"])
    assert group.name == "LayerNormalization"


_VARIANCE = "v = MEAN(p)\ne = Add(v, eps)\ns = Sqrt(e)\n"
_CONSTANTS = FORMS["rms-normalization"].constants + ", int64[2] shape = {3, 4}"
_OTHERS = {
    "RMSNormalization with Mul": f"p = Mul(h, h)\n{_VARIANCE}n = Div(h, s)\no = Mul(n, scale)",
    "RMSNormalization with Reciprocal": (
        f"p = Pow(h, two)\n{_VARIANCE}r = Reciprocal(s)\nn = Mul(h, r)\no = Mul(n, scale)"
    ),
    "LayerNormalization with Mul": (
        f"m = MEAN(h)\nd = Sub(h, m)\np = Mul(d, d)\n{_VARIANCE}n = Div(d, s)\n"
        "t = Mul(n, scale)\no = Add(t, bias)"
    ),
    "LayerNormalization with Reciprocal": (
        f"m = MEAN(h)\nd = Sub(h, m)\np = Pow(d, two)\n{_VARIANCE}r = Reciprocal(s)\n"
        "n = Mul(d, r)\nt = Mul(n, scale)\no = Add(t, bias)"
    ),
    "RMSNormalization with Mul and Reciprocal": (
        f"p = Mul(h, h)\n{_VARIANCE}r = Reciprocal(s)\nn = Mul(h, r)\no = Mul(n, scale)"
    ),
    "LayerNormalization with Mul and Reciprocal": (
        f"m = MEAN(h)\nd = Sub(h, m)\np = Mul(d, d)\n{_VARIANCE}r = Reciprocal(s)\n"
        "n = Mul(d, r)\nt = Mul(n, scale)\no = Add(t, bias)"
    ),
    "LayerNormalization without scale": (
        f"m = MEAN(h)\nd = Sub(h, m)\np = Pow(d, two)\n{_VARIANCE}o = Div(d, s)"
    ),
    "RMSNormalization without scale": f"p = Pow(h, two)\n{_VARIANCE}o = Div(h, s)",
    "GroupNormalization": (
        "a = Reshape(h, shape)\nb = InstanceNormalization(a, scale, bias)\nc = Reshape(b, shape)\n"
        "t = Mul(c, scale)\no = Add(t, bias)"
    ),
    "Softmax": (
        "m = ReduceMax<axes = [-1]>(h)\nd = Sub(h, m)\ne = Exp(d)\nt = ReduceSum(e, axes)\n"
        "o = Div(e, t)"
    ),
}


@pytest.mark.parametrize(
    ("name", "tail"),
    [
        ("layer-normalization", ["t", "o"]),
        ("layer-normalization-one-over", ["t", "o"]),
        ("rms-normalization-one-over", ["o"]),
        ("gelu", []),
        ("silu", []),
    ],
)
def test_the_tail_is_what_follows_the_normalised_numbers(name: str, tail: list[str]) -> None:
    graph = build_type_graph(read_flat(model_around(FORMS[name])))
    (group,) = find_groups(graph, PATTERNS)
    names = graph.flat.node_names
    assert [names[node] for node in sorted(group.tail)] == tail
    assert sorted(names[node] for node in group.nodes) == sorted(members(FORMS[name]))
    assert group.nodes == tuple(sorted(group.nodes))
    assert graph.flat.value_names[group.values["x"]] == "h"


def test_a_group_is_called_by_its_first_and_last_node() -> None:
    graph = build_type_graph(read_flat(model_around(FORMS["silu"])))
    (group,) = find_groups(graph, PATTERNS)
    assert group.words(graph.flat.node_names) == "SiLU from a to o"
    assert group._replace(nodes=group.nodes[1:]).words(graph.flat.node_names) == "SiLU in o"


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("a = Sigmoid(h)\no = Mul(a, h)", 1),
        ("a = custom.Sigmoid(h)\no = Mul(h, a)", 0),
        ("a = Sigmoid(h)\no = custom.Mul(h, a)", 0),
        ("a = Sigmoid(h)\no = Add(h, a)", 0),
        ("a = Sigmoid(h)\nb = Sigmoid(a)\no = Mul(a, b)", 1),
        ("b = Cast<to = 10>(h)\na = Sigmoid(b)\nc = Mul(b, a)\no = Cast<to = 1>(c)", 0),
        ("b = Cast<to = 11>(h)\na = Sigmoid(b)\nc = Mul(b, a)\no = Cast<to = 1>(c)", 0),
    ],
)
def test_a_group_is_of_operators_of_the_standard_in_float32(body: str, count: int) -> None:
    assert len(groups_of(FORMS["silu"]._replace(body=body))) == count


X = Value("x")


@pytest.mark.parametrize("term", [X, Number(2), Op("Mul", X), Pattern("P", Op("Mul", X), "Mul")])
def test_terms_do_not_change(term: object) -> None:
    field = next(iter(type(term).__annotations__))
    with pytest.raises(AttributeError):
        setattr(term, field, "other")


def test_an_anchor_is_part_of_the_expression() -> None:
    with pytest.raises(ValueError, match="pattern P has no Erf"):
        Pattern("P", Op("Mul", X, Op("Exp", X)), "Erf").path()
