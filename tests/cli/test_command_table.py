"""Commands are known by name, and imported when they are called."""

from __future__ import annotations

import inspect
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import onnx
import pytest
from click.testing import CliRunner
from handmade import FORWARD, model_of

import amp_rewrite
import amp_rewrite as amp
from amp_rewrite.base import removed
from amp_rewrite.cli.command_table import COMMANDS, command, understood
from amp_rewrite.cli.main import app
from amp_rewrite.cli.parameters import GROUPS, MAIN
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.save import save

FOLDER = Path(amp_rewrite.__file__).parent / "cli"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_shows_the_first_line_of_each_docstring(name: str) -> None:
    function = name.replace("-", "_")
    text = inspect.getdoc(getattr(import_module(f"amp_rewrite.cli.{function}"), function))
    assert text is not None
    assert text.splitlines()[0] == COMMANDS[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_its_name_and_its_whole_help(name: str) -> None:
    found = command(name)
    assert found.name == name
    assert found.help.startswith(COMMANDS[name])


def test_every_file_that_says_it_is_a_command_is_in_the_table() -> None:
    texts = [path.read_text("utf-8") for path in FOLDER.glob("*.py")]
    heads = [re.match(r'"""`amp-rewrite ([\w-]+)`:', text) for text in texts]
    assert {head[1] for head in heads if head is not None} == set(COMMANDS)


FIRST = ["--precision", "--target", "--output", "--data", "--rtol", "--help"]
"""What `convert --help` begins with; the order is that of the groups' rows."""


def help_of(name: str, width: int = 100) -> str:
    """Return the help of a command on a terminal of some width."""
    found = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": str(width)})
    assert found.exit_code == 0
    return found.output


def sections_of(text: str) -> dict[str, str]:
    """Return the sections of a help by their titles."""
    parts = re.split(r"^(\w[\w ]*):\n", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@cache
def command_of(name: str) -> Any:
    return command(name)


def options_of(name: str) -> list[Any]:
    return [p for p in command_of(name).params if p.param_type_name == "option"]


def test_convert_begins_with_what_most_users_need() -> None:
    sections = sections_of(help_of("convert"))
    shown = re.findall(r"^ +(?:-\w, )?(--[\w-]+)", sections[MAIN], re.M)
    assert sorted(shown) == sorted(FIRST)
    assert [name for name in sections if name in GROUPS] == [
        *("Options", "Types", "Rules", "Checking", "Output", "Advanced")
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_shown_once(name: str) -> None:
    text = "".join(sections_of(help_of(name, 140)).values())
    for option in options_of(name):
        flag = re.escape(max(option.opts, key=len))
        flag = rf"--\[no-\]{flag[4:]}" if option.secondary_opts else flag
        shown = re.findall(
            rf"^  (?:-\w, )?{flag}(?![\w-])|^  --[\w-]+, {flag}(?![\w-])", text, re.M
        )
        assert len(shown) == 1, option.opts


SCREENS = 80
"""Lines of two screens."""


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_is_two_screens_at_most(name: str) -> None:
    found = click.Context(command_of(name), terminal_width=100, max_content_width=100)
    assert len(found.get_help().splitlines()) <= SCREENS


def test_a_switch_that_is_on_says_so_and_a_default_that_says_nothing_is_left_out() -> None:
    text = " ".join(help_of("convert").split())
    assert re.search(r"--\[no-\]keep-io-types .*?\[default: on\]", text)
    assert "[default: default]" not in text
    assert "[default: float16]" in text


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
        (["help"], ["--help"]),
        (["help", "convert"], ["convert", "--help"]),
        ([], []),
    ],
)
def test_commands_of_other_tools_become_those_here(words: list[str], expected: list[str]) -> None:
    assert understood(words) == expected


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
    tables = (removed.COMMANDS, removed.FLAGS, removed.NAMES)
    remedies = " ".join(remedy for table in tables for remedy in table.values())
    names = set(re.findall(r"\bamp\.([a-z_]+)", remedies))
    assert names <= {*dir(amp)}
    assert not names & removed.NAMES.keys()
