"""The options of a rewrite have one spelling, and whatever rewrites takes and honours them all."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite.cli.command_table import command
from amp_rewrite.cli.main import app
from amp_rewrite.dtypes import LOW, Precision, PrecisionLike
from amp_rewrite.errors import OptionError, StrictError
from amp_rewrite.numerics.budget.error_budget import error_budget
from amp_rewrite.numerics.budget.tolerance import Tolerance
from amp_rewrite.numerics.budget.tune import tune
from amp_rewrite.rewriting.plan.options import COMMAND_LINE, OPTIONS, Changes, RewriteOptions

EYE = ",".join("1" if i % 5 == 0 else "0" for i in range(16))
MODEL = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] y)'
    f"<float[4,4] w = {{{EYE}}}>"
    "{ [first] h = MatMul(x, w) [last] y = MatMul(h, w) }"
)
LOUD: list[dict[str, Any]] = [{"x": np.full((1, 4), 1e5, np.float32)}]
QUIET = [{"x": np.full((1, 4), 1.1, np.float32)}]
EXACT = Tolerance("max-relative", 0.0)


def calibrated(**given: Any) -> list[str]:
    return [rule.node for rule in amp.calibrate(MODEL, LOUD, **given).rules]


def tuned(**given: Any) -> tuple[str, ...]:
    return tune(MODEL, QUIET, EXACT, **given).keep


def budgeted(**given: Any) -> list[str]:
    found = error_budget(MODEL, QUIET, **given).contributions
    return [each.node for each in found if each.rounded and each.node]


def test_the_keyword_arguments_are_those_of_the_options() -> None:
    named = {"precision": PrecisionLike}  # options hold the name of what users may name otherwise
    assert get_type_hints(Changes) == {**get_type_hints(RewriteOptions), **named}


def test_an_option_is_described_where_python_shows_the_class() -> None:
    assert all(
        f"\n        {option.name}: {option.shown.help}" in str(RewriteOptions.__doc__)
        for option in OPTIONS
    )


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("precision", "--precision"),
        ("deny_nodes", "--deny-node"),
        ("preserve", "--preserve"),
        ("lists", "--lists"),
        ("input_ranges", "--input-range"),
        ("keep_io_types", "--keep-io"),
    ],
)
def test_the_flag_of_an_option_follows_from_its_name(name: str, flag: str) -> None:
    assert [option.flag for option in OPTIONS if option.name == name] == [flag]


@pytest.mark.parametrize(
    "impossible",
    [
        {"strict": "yes"},
        {"overflow": "all"},
        {"only": "float8"},
        {"deny_ops": 3},
        {"input_ranges": ["x"]},
        {"dims": {"N": "many"}},
        {"weights": None},
    ],
)
def test_each_option_is_checked(impossible: Any) -> None:
    [name] = impossible
    with pytest.raises(OptionError):
        RewriteOptions(**{name: impossible[name]})


def test_the_precisions_that_a_type_checker_knows_are_those_that_there_are() -> None:
    assert get_args(Precision) == tuple(LOW)


_AS_IT_IS = ("calibrate", "tune", "localise", "train-step")


@pytest.mark.parametrize("name", ["convert", "explain", "demo", *_AS_IT_IS])
def test_every_command_that_rewrites_has_every_option(name: str) -> None:
    flags = {flag for parameter in command(name).params for flag in parameter.opts}
    for option in COMMAND_LINE:
        flag = option.flag if option.type is not bool else f"--{option.name.replace('_', '-')}"
        if name == "train-step" and option.name == "keep_io_types":
            assert flag not in flags  # the types of a step's states are not a choice
        elif name == "train-step" and option.name == "variables":
            assert flag not in flags  # a step knows its own
        elif name in _AS_IT_IS and option.name in ("overflow", "only"):
            assert flag not in flags  # they paint the model as it is; a step is not scaled
        else:
            assert flag in flags


def test_rules_alone_are_no_option_of_the_command_line() -> None:
    names = [option.name for option in COMMAND_LINE]
    assert [o.name for o in fields(RewriteOptions) if o.name not in names] == ["rules"]


def test_changes_come_on_top_of_the_options_given() -> None:
    options = RewriteOptions(precision="bfloat16", deny_nodes=["first"])
    result = amp.rewrite(MODEL, options, weights="cast", target="schema")
    assert result.options == RewriteOptions(
        precision="bfloat16", deny_nodes=("first",), weights="cast", target="schema"
    )
    assert options == RewriteOptions(precision="bfloat16", deny_nodes=("first",))


@pytest.mark.parametrize("take", [calibrated, tuned, budgeted])
def test_an_unknown_option_is_named_with_the_nearest_one(take: Any) -> None:
    with pytest.raises(OptionError, match="keyword; found deny_node; expected 'deny_nodes'"):
        take(deny_node=["first"])
    with pytest.raises(OptionError, match="options must be RewriteOptions; found 'float16'"):
        take(options="float16")


@pytest.mark.share(4)
@pytest.mark.parametrize("take", [calibrated, tuned, budgeted])
@pytest.mark.parametrize(
    "given", [{"deny_nodes": ["first"]}, {"preserve": ["first"]}, {"level": "TREAT_INFER_AS_DENY"}]
)
def test_what_the_options_keep_float32_needs_no_search(take: Any, given: Any) -> None:
    assert set(take()) == {"first", "last"}
    assert set(take(**given)) == set(take(options=RewriteOptions(**given)))
    assert set(take(**given)) == ({"first", "last"} if "level" in given else {"last"})


def test_inputs_and_outputs_that_become_low_are_measured() -> None:
    denied = {"deny_nodes": ["last"], "target": "schema"}
    assert amp.calibrate(MODEL, LOUD, **denied).ends == ()
    found = amp.calibrate(MODEL, LOUD, keep_io_types=["x"], **denied)
    assert found.ends == ("y",)
    assert "# Keep the types of these inputs and outputs: y." in found.to_yaml()


@pytest.mark.parametrize(
    ("denied", "weights", "x", "end"),
    [("first", (0.25, 1.0), 1e5, "x"), ("last", (1.0, 4.0), 3e4, "y")],
)
def test_inputs_and_outputs_that_become_low_are_rounded(
    denied: str, weights: tuple[float, float], x: float, end: str
) -> None:
    model = onnx.ModelProto.FromString(MODEL.SerializeToString())
    for name, weight in zip(("w", "v"), weights, strict=True):
        array = weight * np.eye(4, dtype=np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    del model.graph.initializer[0]
    model.graph.node[1].input[1] = "v"
    data = [{"x": np.full((1, 4), x, np.float32)}]
    others = [name for name in ("x", "y") if name != end]
    options = RewriteOptions(deny_nodes=[denied], target="schema")
    assert tune(model, data, EXACT, options).before < 0.01
    assert tune(model, data, EXACT, options, keep_io_types=others).before == np.inf


def test_options_are_for_a_model_that_is_not_rewritten_yet() -> None:
    rewritten = amp.rewrite(MODEL).model
    found = error_budget(MODEL, QUIET, rewritten=rewritten)
    assert found.predicted == error_budget(MODEL, QUIET).predicted
    with pytest.raises(OptionError, match="a rewritten model is given"):
        error_budget(MODEL, QUIET, rewritten=rewritten, precision="bfloat16")


FUNCTION = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 17, "own" : 1]> g (float[N,4] x) => (float[N,4] y)'
    f"<float[4,4] w = {{{EYE}}}> {{ [call] y = own.Twice(x, w) }}"
    '<domain: "own", opset_import: ["" : 17]> Twice (a, b) => (c)'
    "{ [inner] h = MatMul(a, b) c = MatMul(h, b) }"
)


def test_functions_are_inlined_before_they_are_calibrated() -> None:
    assert amp.calibrate(FUNCTION, LOUD).rules == ()
    found = amp.calibrate(FUNCTION, LOUD, inline_functions=True)
    assert len(found.rules) == 2
    names = {node.name for node in amp.rewrite(FUNCTION, inline_functions=True).model.graph}
    assert set(found.nodes) <= names


STRICT = {
    "nothing": ("y = Softmax(x)", "nothing was converted: the model has no allow-list operator"),
    "unknown": ("h = MatMul(x, x) y = custom.Foo(h)", r"no op list knows custom::Foo \(1 node\)"),
    "kernel": ("y = MatMul(x, x)", "target cpu has no bfloat16 kernel for MatMul"),
}


@pytest.mark.parametrize("name", STRICT)
def test_strict_refuses_what_is_not_complete(name: str) -> None:
    body, message = STRICT[name]
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "custom" : 1]>'
        f"g (float[4,4] x) => (float[4,4] y) {{ {body} }}"
    )
    options = RewriteOptions(precision="bfloat16", target="cpu" if name == "kernel" else "schema")
    result = amp.rewrite(model, options)
    with pytest.raises(StrictError, match=f"strict: .*{message}") as caught:
        amp.rewrite(model, options, strict=True)
    assert caught.value.result.report == result.report
    assert any(line in str(caught.value) for line in caught.value.shortcomings)


def test_strict_is_about_the_lists_and_not_about_what_a_search_tries() -> None:
    assert set(tuned(strict=True)) == {"first", "last"}  # with both, nothing is converted
    with pytest.raises(StrictError, match="nothing was converted"):
        tuned(strict=True, deny_nodes=["first", "last"])


def test_a_command_takes_what_convert_takes(tmp_path: Path) -> None:
    onnx.save(MODEL, tmp_path / "m.onnx")
    np.savez(tmp_path / "data.npz", **LOUD[0])
    arguments = [
        *("calibrate", str(tmp_path / "m.onnx"), "--data", str(tmp_path / "data.npz")),
        *("-o", str(tmp_path / "m.yaml"), "--deny-node", "fir*", "--quiet"),
    ]
    app(arguments, standalone_mode=False)
    text = (tmp_path / "m.yaml").read_text("utf-8")
    assert "node: last" in text
    assert "node: first" not in text
