"""What to try next: every command is one that the command line has, with options that it takes."""

from __future__ import annotations

import shlex

import pytest
from rewriting import parse

import amp_rewrite as amp
from amp_rewrite.cli.command_table import COMMANDS, command
from amp_rewrite.report.next_steps import Names, next_steps

W = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"
FUNCTION = f"""<ir_version: 10, opset_import: ["" : 18, "local" : 1]>
g (float[N,4] x) => (float[N,4] y) <{W}> {{ a = MatMul(x, w) y = local.f(a, w) }}
<domain: "local", opset_import: ["" : 18]> f (p, q) => (r) {{ s = MatMul(p, q) r = Relu(s) }}"""
CONV = """<ir_version: 8, opset_import: ["" : 18]>
g (float[1,1,4,4] x) => (float[1,1,4,4] y) <float[1,1,1,1] k = {1}> { y = Conv(x, k) }"""
LIKELY = (
    f"g (float[1,400] x) => (float[1,4] y) <float[400,4] m = {{{','.join(['0.1'] * 1600)}}}> "
    "{ p = Mul(x, x) y = MatMul(p, m) }"
)
NAMES = Names("my model.onnx", "out.onnx")


def steps(text: str, holds: bool | None = True, **options: str) -> list[str]:
    report = amp.rewrite(parse(text), **options).report  # pyright: ignore[reportArgumentType]
    return [step.command for step in next_steps(report, NAMES, holds)]


def test_what_was_not_verified_is_to_be_verified_first() -> None:
    assert steps(CONV, None)[0] == ("amp-rewrite verify 'my model.onnx' out.onnx --data inputs.npz")
    assert not any("verify" in step for step in steps(CONV))


def test_what_does_not_hold_is_to_be_localised() -> None:
    assert [step.split()[1] for step in steps(CONV, holds=False)][:2] == ["localise", "convert"]


def test_a_newer_opset_is_advised_with_its_command() -> None:
    assert "amp-rewrite convert 'my model.onnx' -o out.onnx --precision bfloat16 --opset 22" in (
        steps(CONV, precision="bfloat16")
    )


def test_functions_that_stay_are_to_be_inlined() -> None:
    assert "amp-rewrite convert 'my model.onnx' -o out.onnx --inline-functions" in steps(FUNCTION)


@pytest.mark.filterwarnings("ignore::amp_rewrite.AmpWarning")
def test_estimates_are_to_be_replaced_by_measurements() -> None:
    assert any(step.startswith("amp-rewrite calibrate") for step in steps(LIKELY))


@pytest.mark.filterwarnings("ignore::amp_rewrite.AmpWarning")
@pytest.mark.parametrize("holds", [None, True, False])
@pytest.mark.parametrize("text", [FUNCTION, CONV, LIKELY])
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_every_command_exists_and_takes_its_options(
    text: str, holds: bool | None, precision: str
) -> None:
    for step in steps(text, holds, precision=precision):
        program, name, *arguments = shlex.split(step)
        assert program == "amp-rewrite"
        assert name in COMMANDS
        command(name).make_context(name, arguments, resilient_parsing=False)
