"""The wheel has every folder of the package."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_folder_with_modules_is_in_the_wheel() -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    listed = set(table["tool"]["setuptools"]["packages"]) - {"amp_rewrite.lists"}
    folders = {path.parent for path in (ROOT / "amp_rewrite").rglob("*.py")}
    assert listed == {".".join(folder.relative_to(ROOT).parts) for folder in folders}
