"""The project's own pre-commit hooks: what they run passes here, and fails where it must."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
HOOKS: dict[str, dict[str, Any]] = {
    hook["id"]: hook
    for repo in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    for hook in repo["hooks"]
}


def run(name: str, folder: Path, *files: str) -> int:
    """Run a hook as pre-commit does: from the top of a repository, with file names at the end."""
    program, *words = shlex.split(HOOKS[name]["entry"])
    assert program == "python"
    command = [sys.executable, "-P", *words, *files]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode


def test_every_hook_runs_without_the_network() -> None:
    assert list(HOOKS) == ["ruff", "ruff-format", "check-lists", "api-reference"]
    assert {hook["language"] for hook in HOOKS.values()} == {"system"}


@pytest.mark.slow
def test_the_hooks_pass_here() -> None:
    assert run("check-lists", ROOT) == 0
    assert run("api-reference", ROOT) == 0


@pytest.mark.parametrize("name", ["ruff", "ruff-format"])
def test_a_file_that_ruff_would_change_is_changed_or_refused(name: str, tmp_path: Path) -> None:
    pytest.importorskip("ruff")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    source = tmp_path / "bad.py"
    source.write_text('"""Say nothing."""\n\nimport os\nx = {  }\n', "utf-8")
    before = source.read_text("utf-8")
    status = run(name, tmp_path, source.name)
    assert status != 0 or source.read_text("utf-8") != before


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("check-lists", "lists/float16_cuda.yaml"),
        ("check-lists", "lists/kernels/CUDAExecutionProvider_1.31.1.json"),
        ("api-reference", "amp_rewrite/rewriting/api.py"),
        ("api-reference", "docs/api.md"),
    ],
)
def test_a_hook_watches_the_files_that_it_checks(name: str, changed: str) -> None:
    assert (ROOT / changed).exists()
    assert re.search(HOOKS[name]["files"], changed)
