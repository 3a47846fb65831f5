"""The keys of metadata: each is written down once, and no two say different things in one place."""

from __future__ import annotations

import ast

from house import METADATA_KEYS, trees

from amp_rewrite.graph import metadata_keys

KEYS = {name: text for name, text in vars(metadata_keys).items() if name.endswith("_KEY")}


def test_keys_belong_to_the_package_and_are_not_used_twice() -> None:
    assert all(text.startswith("amp_rewrite.") for text in KEYS.values())
    assert len({*KEYS.values()}) == len(KEYS)


def strings(tree: ast.Module) -> set[str]:
    nodes = ast.walk(tree)
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def test_no_other_file_writes_a_key_down() -> None:
    keys = set(KEYS.values())
    writing = [name for name, tree in trees().items() if strings(tree) & keys]
    assert writing == [METADATA_KEYS]
