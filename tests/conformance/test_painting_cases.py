"""The 58 painting cases hold: types, casts, unchanged graphs, errors and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import painting_cases as cases
import pytest

import amp_rewrite as amp
from amp_rewrite.graph.io.read_object import infer_types
from amp_rewrite.graph.ports import opset_of, ports_of
from amp_rewrite.numerics.emulate import Evaluator, evaluate
from amp_rewrite.oplists import OpLists
from amp_rewrite.rewriting.plan.options import RewriteOptions

CASES = {case["name"]: case for case in cases.document()["cases"]}
RUNNABLE = sorted(name for name, case in CASES.items() if "expect_error" not in case)
NAMES = {"float": "float32"}


def rewritten(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch, variables: bool = True) -> Any:
    for key, value in case.get("lists_override", {}).items():
        monkeypatch.setenv(f"AMP_REWRITE_{key}", value)
    precision = cases.MODES[case["mode"]][0]
    model, _ = cases.build(case)
    options = RewriteOptions(
        precision=precision,
        target="schema",
        lists=OpLists.from_names(**cases.lists_of(case["mode"]), precision=precision),
        level=case.get("level", "default"),
        preserve=tuple(case["preserve"]),
        weights="cast",
        variables=tuple(case.get("variables", ())) if variables else (),
    )
    return amp.rewrite(model, options)


def types_after(result: Any) -> dict[str, str]:
    """Return "node/variable" -> type name, from the rewritten model itself."""
    types = infer_types(result.model)
    found: dict[str, str] = {}
    for node in result.model.graph.all_nodes():
        opset = opset_of(node, result.model.graph.opset_imports)
        ports = ports_of(node.domain, node.op_type, opset, len(node.inputs), len(node.outputs))
        for name, value in zip(
            (*ports.inputs, *ports.outputs), (*node.inputs, *node.outputs), strict=True
        ):
            if value is not None and value in types:
                element = types[value].rsplit("(", 1)[-1].rstrip(")")
                found.setdefault(f"{node.name}/{name}", NAMES.get(element, element))
    names = result.context.type_graph.flat.node_names
    for node in result.removed:
        for variable in ("T1", "T2"):
            found[f"{names[node]}/{variable}"] = result.options.precision
    return found


FAR_IN_FLOAT16 = 0.02
"""How far from float32 a case may be, as a share of its size, where kernels add in float16."""


@pytest.mark.share(2)
@pytest.mark.parametrize("name", RUNNABLE)
def test_every_variable_has_the_expected_type(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    found = types_after(rewritten(case, monkeypatch))
    for variable, expected in case["expect"].items():
        node, letter = variable.split("/")
        # Identity's variable is T before opset 14 and V since; the cases write either.
        names = [variable] if variable in found else [f"{node}/V", f"{node}/T", f"{node}/S"]
        actual = next((found[n] for n in names if n in found), None)
        assert actual == expected, f"{variable} ({letter})"


@pytest.mark.parametrize("name", [n for n in RUNNABLE if "expect_no_variables" in CASES[n]])
def test_a_read_of_what_is_no_variable_is_painted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = types_after(rewritten(CASES[name], monkeypatch, variables=False))
    for variable, expected in CASES[name]["expect_no_variables"].items():
        assert found.get(variable, found.get(variable.replace("/T", "/V"))) == expected


@pytest.mark.share(2)
@pytest.mark.parametrize("name", RUNNABLE)
def test_exactly_the_expected_casts_are_added(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    result = rewritten(case, monkeypatch)

    def key(value: str, to: str, consumers: Any) -> tuple[str, str, frozenset[str]]:
        # As above: an Identity's variable has two names.
        return value, to, frozenset(c.removesuffix("/T").removesuffix("/V") for c in consumers)

    added = sorted(
        (key(c.value, c.to, c.consumers) for c in result.report.casts),
        key=str,
    )
    expected = case["expect_casts"]
    assert len(added) == expected["total"]
    assert sum(to != "float32" for _, to, _ in added) == expected["to_f16"]
    assert sum(to == "float32" for _, to, _ in added) == expected["to_f32"]
    if "list" in expected:
        wanted = [key(c["value"], c["to"], c["consumers"]) for c in expected["list"]]
        assert added == sorted(wanted, key=str)


@pytest.mark.parametrize("name", sorted(n for n, c in CASES.items() if c.get("expect_unchanged")))
def test_an_unchanged_graph_comes_back_as_it_was(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = rewritten(CASES[name], monkeypatch)
    assert not result.changed
    before = amp.to_proto(amp.load(cases.build(CASES[name])[0]))
    after = amp.to_proto(result.model)
    assert [n.SerializeToString() for n in after.graph.node] == [
        n.SerializeToString() for n in before.graph.node
    ]


@pytest.mark.parametrize("name", sorted(n for n, c in CASES.items() if "expect_error" in c))
def test_an_impossible_case_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(amp.AmpError, match=CASES[name]["expect_error"]):
        rewritten(CASES[name], monkeypatch)


@pytest.mark.share(5)
@pytest.mark.parametrize("name", RUNNABLE)
def test_the_result_is_valid_and_computes_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    model, feeds = cases.build(case)
    after = amp.to_proto(rewritten(case, monkeypatch).model)
    onnx.checker.check_model(after, full_check=True)
    assert_agree(case, evaluate(model, feeds), evaluate(after, feeds))


@pytest.mark.webgpu
@pytest.mark.filterwarnings("ignore:the file grows:amp_rewrite.AmpWarning")
@pytest.mark.parametrize("name", [n for n in RUNNABLE if CASES[n]["mode"] != "bf16"])
def test_the_result_computes_the_same_in_real_float16(name: str, webgpu: str) -> None:
    model, feeds = cases.build(CASES[name])
    low = amp.rewrite(model, target="webgpu").model
    # Against the device's own float32: it computes a Conv of 6 channels wrong (py_conv_pool).
    expected, actual = (
        Evaluator(given, emulate=False, providers=[webgpu]).run(feeds) for given in (model, low)
    )
    for name, value in expected.items():
        wanted = np.asarray(value, np.float64)
        far = np.linalg.norm(np.asarray(actual[name], np.float64) - wanted)
        assert far <= FAR_IN_FLOAT16 * np.linalg.norm(wanted)


def assert_agree(case: dict[str, Any], expected: dict[str, Any], actual: dict[str, Any]) -> None:
    """Compare results with the tolerance of a case."""
    tolerance = case["numerics_tolerance"]
    default = 5 * float(np.finfo(np.float32).eps)
    atol = default if tolerance["atol"] == -1 else tolerance["atol"]
    rtol = default if tolerance["rtol"] == -1 else tolerance["rtol"]
    for name, value in expected.items():
        np.testing.assert_allclose(
            np.asarray(actual[name], np.float64),
            np.asarray(value, np.float64),
            rtol=rtol,
            atol=atol,
        )
