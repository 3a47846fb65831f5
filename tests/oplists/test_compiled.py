"""The compiled lists are those that parsing gives, and are not taken for what has changed since."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from amp_rewrite import targets
from amp_rewrite.oplists import compiled, files, load_lists, parse

NAMES = files.builtin_names()
SMALL = """version: 1
precision: float16
target: cuda
allow: [{op: Resize, when: {mode: [nearest]}, why: fast}]
deny: [{op: Exp, since: 13, why: it overflows}]
nodes: [{node: first, list: deny, why: measured}]
"""
CHANGED = SMALL.replace("first", "second")


def source(name: str) -> tuple[str, str]:
    """Return the text of a built-in list and its name in errors."""
    return targets.DATA.joinpath(f"{name}.yaml").read_text("utf-8"), f"lists/{name}.yaml"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the lists folder of a checkout with one list, whose lists the built-in ones are."""
    folder = tmp_path / "lists"
    folder.mkdir()
    (folder / "small.yaml").write_text(SMALL, "utf-8")
    (tmp_path / "pyproject.toml").touch()
    parse.parse(SMALL, "warm-up")  # the schemas that lists are held against stay the real ones
    monkeypatch.setattr(targets, "DATA", folder)
    return folder


def nodes(text: str) -> list[str]:
    """Return the nodes of the rules that a process finds which reads a list for the first time."""
    compiled.list_file.cache_clear()
    return [rule.node for rule in compiled.list_file(text, "lists/small.yaml").node_rules]


def kept(folder: Path) -> list[str]:
    """Return the names of the files that are kept."""
    return sorted(p.name for p in (folder / compiled.FOLDER).glob("*"))


def test_what_was_kept_is_read_without_a_parser(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = parse.parse(SMALL, "lists/small.yaml")
    assert nodes(SMALL) == ["first"]
    assert kept(checkout) == ["small.json"]
    monkeypatch.setattr(parse, "parse", None)
    assert nodes(SMALL) == ["first"]
    assert compiled.list_file(SMALL, "lists/small.yaml") == expected


def test_a_list_that_has_changed_is_parsed_and_kept_again(checkout: Path) -> None:
    assert nodes(SMALL) == ["first"]
    (checkout / "small.yaml").write_text(CHANGED, "utf-8")
    assert nodes(CHANGED) == ["second"]
    assert "second" in (checkout / compiled.FOLDER / "small.json").read_text("utf-8")


def test_what_another_parser_made_is_not_read(checkout: Path) -> None:
    nodes(SMALL)
    path = checkout / compiled.FOLDER / "small.json"
    row = json.loads(path.read_text("utf-8"))
    row["node_rules"] = []
    path.write_text(json.dumps(row), "utf-8")
    assert nodes(SMALL) == []  # it is what is read
    path.write_text(json.dumps({**row, "stamp": "of another parser"}), "utf-8")
    assert nodes(SMALL) == ["first"]


@pytest.mark.parametrize("name", NAMES)
def test_a_built_in_list_says_what_parsing_it_says(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled.list_file(*source(name))  # a checkout keeps it, a wheel has it
    compiled.list_file.cache_clear()
    expected = parse.parse(*source(name))
    assert expected.entries
    monkeypatch.setattr(parse, "parse", None)
    assert compiled.list_file(*source(name)) == expected


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


BUILD = """
import sys
from pathlib import Path
sys.modules.update(dict.fromkeys(("ml_dtypes", "numpy", "onnx"), None))  # importing them raises
from amp_rewrite.oplists.compiled import compile_lists
compile_lists(Path(sys.argv[1]))
"""


def test_a_wheel_is_built_with_a_yaml_parser_alone(tmp_path: Path) -> None:
    folder = tmp_path / "lists"
    shutil.copytree(str(targets.DATA), folder, ignore=shutil.ignore_patterns("*.json", "*.py"))
    subprocess.run([sys.executable, "-P", "-c", BUILD, str(folder)], check=True)
    assert kept(folder) == sorted(f"{name}.json" for name in NAMES)
    for name in NAMES:
        compiled.list_file(*source(name))  # keeps it, checked, where this is a checkout
        built = (folder / compiled.FOLDER / f"{name}.json").read_bytes()
        assert built == (targets.DATA / compiled.FOLDER / f"{name}.json").read_bytes()
