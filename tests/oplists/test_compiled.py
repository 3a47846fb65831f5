"""The compiled lists are those that parsing gives, and are not taken for what has changed since."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from amp_rewrite import targets
from amp_rewrite.oplists import compiled, files, load_lists, parse

TOOL = Path(__file__).parents[2] / "tools" / "compile_lists.py"


def source(name: str) -> tuple[str, str]:
    """Return the text of a built-in list and its name in errors."""
    return targets.DATA.joinpath(f"{name}.yaml").read_text("utf-8"), f"lists/{name}.yaml"


def test_the_file_is_current() -> None:
    spec = importlib.util.spec_from_file_location("compile_lists", TOOL)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.FILE.read_text("utf-8") == tool.compiled(), "run python tools/compile_lists.py"


@pytest.mark.parametrize("name", files.builtin_names())
def test_a_built_in_list_says_what_parsing_it_says(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = parse.parse(*source(name))
    assert expected.entries
    monkeypatch.setattr(parse, "parse", None)
    assert compiled.list_file(*source(name)) == expected


def test_a_list_that_has_changed_is_parsed_again() -> None:
    text, name = source("float16_cuda")
    changed = text + "\nnodes:\n  - {node: first, list: deny, why: it overflows}\n"
    found = compiled.list_file(changed, name)
    assert [rule.node for rule in found.node_rules] == ["first"]
    assert len(found.entries) == len(compiled.list_file(text, name).entries)


def test_a_file_of_the_users_own_is_parsed_and_laid_over_a_compiled_one(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "version: 1\nprecision: float16\ntarget: cuda\nextend: float16_cuda\n"
        "remove: [{op: MatMul, list: allow}]\ndeny: [{op: MatMul, why: mine}]\n",
        "utf-8",
    )
    lists = load_lists(path, environ={})
    places = {
        op: entry.where for op in ("MatMul", "Gemm") if (entry := lists.classify("", op, 17, {}))
    }
    assert places["MatMul"] == f"{path}:6"
    assert places["Gemm"].startswith("lists/float16_cuda.yaml:")
