"""What users of other converters type: understood, or answered in one line."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
from handmade import FORWARD, model_of
from typer.testing import CliRunner

import amp_rewrite as amp
from amp_rewrite.base import removed
from amp_rewrite.cli.main import app
from amp_rewrite.cli.other_names import understood
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.save import save


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    save(model_of(FORWARD), "in.onnx")
    return "in.onnx"


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, understood(words))
    return result.exit_code, result.output


def precision_of(path: str) -> set[int]:
    return {tensor.data_type for tensor in onnx.load(path).graph.initializer}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--debug", "compare", "a", "b"], ["--debug", "verify", "a", "b"]),
        (["benchmark", "m"], ["run", "m"]),
        (["convert", "compare", "--", "-q"], ["convert", "compare", "--", "-q"]),
        (["--help"], ["--help"]),
        ([], []),
    ],
)
def test_commands_of_other_tools_become_those_here(words: list[str], expected: list[str]) -> None:
    assert understood(words) == expected


@pytest.mark.parametrize(
    ("option", "answer"),
    [
        ("--exclude", "--deny-op OPERATOR keeps an operator in float32"),
        ("--bf16", "--precision bfloat16"),
        ("--op_block_list", "--deny-op OPERATOR"),
        ("--atol", "--rtol is the tolerance"),
        ("--device", "--target names what the model is for"),
    ],
)
def test_an_option_that_may_mean_several_things_is_answered(
    model: str, option: str, answer: str
) -> None:
    status, output = run("convert", model, "-o", "out.onnx", option, "x")
    assert status == 2
    assert answer in output


def test_compare_compares_two_models(model: str) -> None:
    assert run("convert", model, "-o", "out.onnx", "--target", "schema")[0] == 0
    status, output = run("compare", model, "out.onnx")
    assert status == 0
    assert "against the original" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["convert", "-", "-o", "low.onnx"], "- for a stream was removed in 0.1.0"),
        (["report", "m.onnx"], "the command report was removed in 0.1.0"),
    ],
)
def test_what_was_removed_is_answered(words: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        understood(words)


def test_a_second_argument_is_the_output(model: str) -> None:
    status, output = run("convert", model, "out.onnx", "--target", "schema", "--quiet")
    assert (status, output) == (0, "")
    assert onnx.TensorProto.FLOAT16 in precision_of("out.onnx")


def test_a_model_that_is_there_is_never_taken_for_the_output(model: str) -> None:
    content = Path(model).read_bytes()
    Path("other.onnx").write_bytes(content)
    status, output = run("convert", model, "other.onnx")
    assert status == 2
    assert "other.onnx" in output
    assert Path("other.onnx").read_bytes() == content


def test_an_option_that_was_removed_is_answered_without_a_guess(model: str) -> None:
    status, output = run("convert", model, "-o", "out.onnx", "--measure")
    assert status == 2
    assert "--measure was removed in 0.1.0; time the files with `amp-rewrite run`" in output
    assert "Possible options" not in output
    assert not Path("out.onnx").exists()


def test_what_takes_the_place_of_something_removed_is_there() -> None:
    tables = (removed.COMMANDS, removed.FLAGS, removed.ARGUMENTS, removed.NAMES)
    remedies = " ".join(remedy for table in tables for remedy in table.values())
    names = set(re.findall(r"\bamp\.([a-z_]+)", remedies))
    assert names <= {*dir(amp)}
    assert not names & removed.NAMES.keys()
