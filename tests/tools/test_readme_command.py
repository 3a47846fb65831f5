import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "readme_command.py"


@pytest.fixture(name="tool")
def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("readme_command", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_first_two_shell_blocks_of_the_readme_are_one_line_each(tool: ModuleType) -> None:
    first, second = tool.shell_blocks(tool.README.read_text("utf-8"))[:2]
    assert first == "pip install '.[cpu]' && amp-rewrite demo"
    assert second == "pip install '.[dev]' && python tools/check.py"


def test_blocks_of_other_languages_are_not_shell_blocks(tool: ModuleType) -> None:
    assert tool.shell_blocks("```python\nx\n```\n```sh\nls\n```\n```bash\npwd\n```\n") == [
        "ls",
        "pwd",
    ]


def test_the_command_is_printed_as_it_stands(
    tool: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(["2"]) == 0
    assert capsys.readouterr().out == "pip install '.[dev]' && python tools/check.py\n"


@pytest.mark.parametrize("arguments", [[], ["0"], ["99"], ["two"]])
def test_a_missing_block_is_wrong_usage(
    tool: ModuleType, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(arguments) == 2
    assert capsys.readouterr().err
