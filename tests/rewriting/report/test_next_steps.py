"""What to try next: every command is one that the command line has, with options that it takes."""

from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import onnx
import pytest
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.cli.command_table import COMMANDS, command
from amp_rewrite.rewriting.plan.options import RewriteOptions, option_words
from amp_rewrite.rewriting.report.next_steps import Names, next_steps
from amp_rewrite.rewriting.report.records import RaisedOpset

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
    assert steps(CONV, None)[0] == "amp-rewrite verify 'my model.onnx' out.onnx"
    assert not any("verify" in step for step in steps(CONV))


def test_what_does_not_hold_is_to_be_localised() -> None:
    report = amp.rewrite(parse(CONV)).report
    given = NAMES._replace(data=("my data", "b.npz"))
    found = [step.command for step in next_steps(report, given, holds=False)]
    assert found[0] == (
        "amp-rewrite localise 'my model.onnx' out.onnx --data 'my data' --data b.npz"
    )
    failed = given._replace(written=False, rtol=1e-4)
    found = [step.command for step in next_steps(report, failed, holds=False)]
    assert found[0] == (
        "amp-rewrite convert 'my model.onnx' -o out.onnx --data 'my data' --data b.npz "
        "--rtol 0.0001 --write-failed"
    )


@pytest.mark.filterwarnings("ignore::amp_rewrite.AmpWarning")
@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("holds", [None, True, False])
@pytest.mark.parametrize("data", [(), ("a.npz", "b")])
def test_no_command_reads_a_file_that_is_not_there(
    holds: bool | None, data: tuple[str, ...], written: bool
) -> None:
    there = {"my model.onnx", *data, *(["out.onnx"] if written else [])}
    for text in (CONV, FUNCTION, LIKELY):
        report = amp.rewrite(parse(text)).report
        found = next_steps(report, Names("my model.onnx", "out.onnx", data, written), holds)
        assert len(found) == len({step.command for step in found})
        for step in found:
            words = shlex.split(step.command)
            files = {
                word
                for before, word in pairwise(words)
                if before != "-o" and ("." in word or before == "--data")
            }
            assert files <= there, step.command


GIVEN = {
    "target": "webgpu",
    "deny_nodes": ["n*", "it's"],
    "input_ranges": {"x": (0.0, 255.0)},
    "keep_io_types": False,
    "move_casts": False,
}


def test_what_is_suggested_has_the_options_of_what_was_done() -> None:
    model = parse(CONV)
    for node, name in zip(model.graph.node, ("n1",), strict=True):
        node.name = name
    model.graph.node.append(onnx.helper.make_node("Relu", ["y"], ["z"], name="it's"))
    report = amp.rewrite(model, **GIVEN).report
    summary = replace(report.summary, nodes_converted=1)
    report = replace(report, opset_raised=RaisedOpset(18, 0.5, None), summary=summary)
    [verify, *_] = next_steps(report, NAMES, None)
    assert verify.command == (
        "amp-rewrite verify 'my model.onnx' out.onnx --target webgpu --input-range x=0:255"
    )
    given = NAMES._replace(data=("samples/",))
    [localise, *_] = next_steps(report, given, holds=False)
    assert localise.command.endswith(" --data samples/ --target webgpu")
    [convert, *_] = next_steps(report, given._replace(written=False), holds=False)
    assert shlex.split(convert.command)[5:] == [
        *("--target", "webgpu", "--no-keep-io-types", "--deny-node", "n*", "--deny-node", "it's"),
        *("--no-move-casts", "--input-range", "x=0:255", "--opset", "18", "--data", "samples/"),
        "--write-failed",
    ]


def test_files_of_lists_and_names_that_are_kept_are_repeated_and_own_lists_only() -> None:
    lists = amp.load_lists()
    asked = option_words(RewriteOptions(keep_io_types=["a", "b"], lists=["x.yaml", Path("y.yaml")]))
    assert asked == (
        *(("--lists", "x.yaml"), ("--lists", "y.yaml")),
        *(("--keep-io", "a"), ("--keep-io", "b")),
    )
    assert option_words(RewriteOptions(lists=lists, strict=True)) == ()


@pytest.mark.filterwarnings("ignore::amp_rewrite.AmpWarning")
def test_estimates_are_to_be_replaced_by_measurements() -> None:
    report = amp.rewrite(parse(LIKELY)).report
    for data, said in (((), "inputs"), (("a.npz",), "calibrate")):
        found = [step.command for step in next_steps(report, NAMES._replace(data=data), True)]
        assert any(step.startswith(f"amp-rewrite {said}") for step in found)


@pytest.mark.share(2)
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


CACHED = f"""g (float[1,N,4] x, float[1,P,4] PAST_KEY, float[1,P,4] PAST_VALUE)
=> (float[1,N,4] logits, float[1,T,4] NOW_KEY, float[1,T,4] NOW_VALUE) <{W}> {{
    k = MatMul(x, w) NOW_KEY = Concat<axis = 1>(PAST_KEY, k)
    NOW_VALUE = Concat<axis = 1>(PAST_VALUE, k) t = Transpose<perm = [0, 2, 1]>(NOW_KEY)
    s = MatMul(x, t) p = Softmax(s) logits = MatMul(p, NOW_VALUE)
}}"""
