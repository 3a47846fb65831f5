"""The keys of metadata: each is written down once, and no two say different things in one place."""

from __future__ import annotations

import ast
from pathlib import Path

import amp_rewrite
from amp_rewrite.graph import metadata_keys

KEYS = {name: text for name, text in vars(metadata_keys).items() if name.endswith("_KEY")}
PACKAGE = Path(amp_rewrite.__file__).parent


def test_keys_belong_to_the_package_and_are_not_used_twice() -> None:
    assert all(text.startswith("amp_rewrite.") for text in KEYS.values())
    # One stands in a file, the other on an object.
    twice = {n for n, text in KEYS.items() if list(KEYS.values()).count(text) > 1}
    assert twice == {"ROLES_KEY", "TRAINING_KEY"}


def strings(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def test_no_other_file_writes_a_key_down() -> None:
    known = set(KEYS.values())
    assert [p.name for p in PACKAGE.rglob("*.py") if strings(p) & known] == ["metadata_keys.py"]
