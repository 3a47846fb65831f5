"""Node rules as an op list file that lies over the lists they were found with."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from amp_rewrite import targets
from amp_rewrite.errors import SaveError
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.oplists import NodeRule, OpLists
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.report.write_text import write_text

_VERSION = 1
_WIDTH = 100


def overlay_text(
    rules: Iterable[NodeRule], options: RewriteOptions, comments: Sequence[str] = ()
) -> str:
    """Return the file: comments, a head that extends the lists used, and one entry per rule.

    If several list files were given, the head extends nothing, and a comment says so.
    """
    owners = targets.find(options.chosen_target).list_owners
    about = owners[0] if len(owners) == 1 else "any"
    head = {"version": _VERSION, "precision": options.precision, "target": about}
    base = _base(options, owners)
    notes = [*comments]
    if base is None:
        notes.append("Lay it over the lists that it was found with: --lists FIRST --lists THIS")
    else:
        head["extend"] = base
    lines = [f"# {line}" for line in notes]
    lines.append(_dump(head).rstrip())
    entries = [_entry(rule) for rule in rules]
    body = _dump({"nodes": entries}) if entries else "nodes: []\n"
    return "\n".join(lines) + "\n" + body


def list_path(path: str | os.PathLike[str]) -> Path:
    """Return where an op list is written.

    Raises:
        SaveError: It is no path, or that of a model or of data.
    """
    found = Path(path_text(path, SaveError))
    if found.suffix in (".onnx", ".npz"):
        raise SaveError("an op list is written", where=found, expected="NAME.yaml")
    return found


class OpListFile:
    """A result that can be written as an op list file."""

    def to_yaml(self) -> str:
        """Return an op list file for `rewrite(lists=...)` and `convert --lists`."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `to_yaml()` to a file, as a whole or not at all.

        Raises:
            SaveError: The file cannot be written.
        """
        write_text(list_path(path), self.to_yaml().rstrip("\n"))


def _entry(rule: NodeRule) -> dict[str, str]:
    entry = {"node": rule.node, "list": rule.list.value, "why": rule.why}
    if rule.variable is not None:
        entry["variable"] = rule.variable
    return entry


def _base(options: RewriteOptions, owners: Sequence[str]) -> str | None:
    """Return what to extend: the built-in lists, or the one file that was given."""
    lists = options.lists
    if lists is None:
        return ",".join(f"{options.precision}_{owner}" for owner in owners)
    if isinstance(lists, OpLists):
        return None
    paths = [lists] if isinstance(lists, str | os.PathLike) else [*lists]
    if len(paths) != 1:
        return None
    name = os.fspath(paths[0])
    return os.path.abspath(name) if os.path.isfile(name) else name


def _dump(document: object) -> str:
    return yaml.safe_dump(
        document, sort_keys=False, allow_unicode=True, width=_WIDTH, default_flow_style=False
    )
