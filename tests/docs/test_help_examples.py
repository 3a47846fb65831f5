"""The examples that `--help` shows run, one after the other, on the files of the pages."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from amp_rewrite.cli.command_table import COMMANDS, EXAMPLES, FIRST, command
from amp_rewrite.cli.main import main


def test_every_command_has_examples_in_the_order_of_the_list() -> None:
    assert list(EXAMPLES) == list(COMMANDS)
    assert set(FIRST) <= {line for lines in EXAMPLES.values() for line in lines}


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_are_understood(name: str) -> None:
    for line in EXAMPLES[name]:
        _, called, *arguments = shlex.split(line.replace("\\\n", " "))
        assert command(called).make_context(called, arguments).params


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_examples_run(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    for line in (line for lines in EXAMPLES.values() for line in lines):
        program, *arguments = shlex.split(line.replace("\\\n", " "))
        assert program == "amp-rewrite"
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 0, line
