"""`check` passes what `repair` wrote, and a second repair writes the same bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product

import low_models
import onnx
import pytest
import wild_laws
from cast_whole import cast_whole
from group_models import FORMS, Form, model_around
from onnx import helper
from repaired_again import repaired_twice
from thinned import every
from wild_models.generate import generate
from worker_loop import BrokenLawError

import amp_rewrite as amp
from amp_rewrite.graph.io.read_object import infer_types

WAYS = [
    ("float16", "cuda", 17),
    ("float16", "webgpu", 13),
    ("float16", "cpu-arm64", 20),
    ("bfloat16", "cuda", 20),
    ("bfloat16", "openvino", 13),
]
"""Precisions, targets and opsets; ReduceMean takes its axes as an input from opset 18 on."""

_CONSTANTS = "float two = {2.0}, float one = {1.0}, float eps = {0.00001}"
CENTRED = ("m = MEAN(h)\nd = Sub(h, m)", "d = Identity(h)")
SQUARED = ("p = Pow(d, two)", "p = Mul(d, d)")
DIVIDED = (
    "n = Div(d, s)",
    "r = Reciprocal(s)\nn = Mul(d, r)",
    "r = Div(one, s)\nn = Mul(r, d)",
)
AFFINE = (
    "g = Mul(n, scale)\no = Add(g, bias)",
    "g = Mul(scale, n)\no = Add(bias, g)",
    "o = Mul(n, scale)",
    "o = Add(n, bias)",
    "o = Identity(n)",
)

_BY_RECIPROCAL = "r = Reciprocal(t)\no = Mul(e, r)"
SOFTMAXES = {
    name: Form(f"{shift}\ne = Exp(d)\nt = SUM(e)\n{division}", "float spare = {1.0}", "Softmax")
    for name, shift, division in (
        ("softmax", "m = MAX(h)\nd = Sub(h, m)", "o = Div(e, t)"),
        ("softmax-reciprocal", "m = MAX(h)\nd = Sub(h, m)", _BY_RECIPROCAL),
        ("exponential-share", "d = Identity(h)", "o = Div(e, t)"),
        ("exponential-share-reciprocal", "d = Identity(h)", _BY_RECIPROCAL),
    )
}
"""Softmax written out."""


def norm(centred: str, squared: str, divided: str, affine: str) -> Form:
    deviation = "v = MEAN(p)\ne = Add(v, eps)\ns = Sqrt(e)"
    body = "\n".join((centred, squared, deviation, divided, affine))
    return Form(body, _CONSTANTS, "normalization")


def around(form: Form, opset: int) -> onnx.ModelProto:
    """Return a model around a form; shares that a Softmax makes are those of an attention."""
    largest = "ReduceMax<axes = [-1]>(h)" if opset < 18 else "ReduceMax(h, axes)"
    body = form.body.replace("MAX(h)", largest).replace("SUM(e)", "ReduceSum(e, axes)")
    attends = "u = Transpose<perm = [0, 2, 1]>(h)\nk = MatMul(o, u)\ny = MatMul(k, h)"
    behind = attends if form.operator == "Softmax" else "y = MatMul(o, w)"
    return model_around(form._replace(body=body), opset, behind)


def with_constant_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose constants are made by Constant nodes."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    held = [
        helper.make_node("Constant", [], [t.name], f"held {t.name}", value=t)
        for t in model.graph.initializer
    ]
    del made.graph.initializer[:], made.graph.node[:]
    made.graph.node.extend([*held, *model.graph.node])
    return made


def inside_if(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose nodes stand in the branch of an If."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    branch = helper.make_graph(list(model.graph.node), "taken", [], list(model.graph.output))
    other = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["z"], "z")],
        "other",
        [],
        [helper.make_value_info("z", model.graph.output[0].type)],
    )
    choice = helper.make_node("If", ["choice"], ["y"], "if", then_branch=branch, else_branch=other)
    made.graph.input.append(helper.make_tensor_value_info("choice", onnx.TensorProto.BOOL, []))
    del made.graph.node[:]
    made.graph.node.append(choice)
    return made


@pytest.mark.share(11)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way)))
@pytest.mark.parametrize("spelling", [*product(CENTRED, SQUARED, DIVIDED, AFFINE)])
def test_a_normalization_however_it_is_spelled_is_repaired_once(
    spelling: tuple[str, str, str, str], way: tuple[str, str, int]
) -> None:
    precision, target, opset = way
    made = repaired_twice(cast_whole(around(norm(*spelling), opset), precision), target)
    assert made.changed or precision == "bfloat16"


@pytest.mark.share(7)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way)))
@pytest.mark.parametrize("form", [*FORMS.values(), *SOFTMAXES.values()])
def test_a_group_however_it_is_spelled_is_repaired_once(
    form: Form, way: tuple[str, str, int]
) -> None:
    precision, target, opset = way
    repaired_twice(cast_whole(around(form, opset), precision), target)


@pytest.mark.parametrize("placed", [with_constant_nodes, inside_if])
@pytest.mark.parametrize("way", WAYS[:3], ids=lambda way: "-".join(map(str, way)))
@pytest.mark.parametrize("name", ["layer-normalization", "rms-normalization", "softmax-reciprocal"])
def test_where_its_constants_and_nodes_stand_does_not_matter(
    name: str, way: tuple[str, str, int], placed: Callable[[onnx.ModelProto], onnx.ModelProto]
) -> None:
    precision, target, opset = way
    model = around({**FORMS, **SOFTMAXES}[name], opset)
    assert repaired_twice(cast_whole(placed(model), precision), target).changed


@pytest.mark.parametrize("weights", ["cast", "convert"])
@pytest.mark.parametrize("keep_io", ["given", "float32"])
def test_a_layer_normalization_is_repaired_once_with_each_option(
    weights: str, keep_io: str
) -> None:
    model = cast_whole(model_around(FORMS["layer-normalization"]), "float16")
    assert repaired_twice(model, "cuda", weights=weights, keep_io=keep_io).changed


@pytest.mark.parametrize("name", every([*FORMS, *SOFTMAXES], 5))
def test_what_was_repaired_passes_a_run(name: str) -> None:
    model = cast_whole(around({**FORMS, **SOFTMAXES}[name], 17), "float16")
    repaired_twice(model, "cuda", run=True)


def test_the_tail_of_a_repaired_normalization_stays_16_bit() -> None:
    model = cast_whole(model_around(FORMS["layer-normalization"]), "float16")
    made = repaired_twice(model, "cuda")
    types = {value.name: type_ for value, type_ in infer_types(made.raised.model).items()}
    assert (types["p"], types["n"]) == ("tensor(float)", "tensor(float)")
    assert {types[name] for name in ("h", "t", "o")} == {"tensor(float16)"}


@pytest.mark.share(3)
@pytest.mark.parametrize("target", ["cuda", "webgpu"])
@pytest.mark.parametrize("name", low_models.WRONG)
def test_a_wrong_model_is_repaired_once(name: str, target: str) -> None:
    assert repaired_twice(low_models.MODELS[name](), target).changed


FAST, SLOW = 60, 1500


@pytest.mark.parametrize("seeds", every([range(FAST), range(FAST, SLOW)], 2), ids=str)
def test_random_models_are_repaired_once(seeds: range) -> None:
    changed = 0
    for seed in seeds:
        rng = random.Random(seed)
        model = generate(seed).sorted
        precision = rng.choice(wild_laws.PRECISIONS)
        forced = amp.rewrite(
            model,
            precision=precision,
            target="schema",
            keep_io_types=rng.random() < 0.5,
            lists=wild_laws.all_allowed(model, precision),
        )
        target = rng.choice(["cuda", "webgpu" if precision == "float16" else "openvino"])
        try:
            changed += repaired_twice(forced.model, target).changed
        except BrokenLawError as error:
            raise BrokenLawError(f"seed {seed} for {target}: {error}") from error
    assert changed >= len(seeds) // 3
