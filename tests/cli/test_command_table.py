"""Commands are known by name, and imported when they are called."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import amp_rewrite
from amp_rewrite.cli.command_table import COMMANDS, command

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
