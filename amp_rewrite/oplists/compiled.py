"""The built-in op lists as they were parsed before: lists/compiled/<list>.json.

Parsing a list, and checking it against the schemas, takes longer than rewriting a small model;
reading JSON takes 1 ms. A wheel brings the files (tools/build_backend.py makes them); a checkout
keeps those that it has parsed. A file is for one text and one parser, else the list is parsed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from dataclasses import astuple
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from amp_rewrite.oplists.entries import (
    Condition,
    Custom,
    Entry,
    ListFile,
    ListName,
    NodeRule,
    NoKernel,
    Removal,
)

FOLDER = "compiled"
"""The folder of the files, beside the lists."""

_BUILT_IN = re.compile(r"lists/([\w-]+)\.yaml")
_RECORDS = ("removals", "entries", "no_kernels", "node_rules")
_log = logging.getLogger(__name__)


@cache
def list_file(text: str, name: str) -> ListFile:
    """Return a parsed list file, which is shared between calls and must not be changed."""
    match = _BUILT_IN.fullmatch(name)
    row = None if match is None else _read(match[1], _stamp(text))
    if row is not None:
        return _restore_file(name, row)
    from amp_rewrite.oplists import parse  # it loads a YAML parser, which few programs need

    file = parse.parse(text, name)
    folder = None if match is None else _checkout(match[1], text)
    if match is not None and folder is not None and not file.problems:
        try:
            _write(folder, match[1], text, file)
        except OSError as error:  # a checkout that only others may write: it is parsed every time
            _log.debug("%s is not kept as it was parsed: %s", name, error)
    return file


def compile_lists(folder: Path) -> None:
    """Parse all lists of a folder, and keep them; for a wheel, so without checks by schemas.

    Raises:
        ListError: A list is wrong; tools/check_lists.py finds all problems.
    """
    from amp_rewrite.oplists import parse

    sources = sorted(folder.glob("*.yaml"))
    for path in sources:
        text = path.read_text("utf-8")
        file = parse.parse(text, f"lists/{path.name}", checked=False)
        if file.problems:
            raise file.problems[0]
        _write(folder, path.stem, text, file)
    names = {f"{path.stem}.json" for path in sources}
    for path in (folder / FOLDER).glob("*.json"):
        if path.name not in names:  # of a list that there was
            path.unlink()


def _data() -> Traversable:
    """Return the folder with the built-in lists."""
    from amp_rewrite import targets  # a wheel is built without numpy and onnx, which it loads

    return targets.DATA


def _checkout(name: str, text: str) -> Path | None:
    """Return the folder of a list in a checkout; installed ones stay as they are."""
    folder = Path(str(_data())).resolve()
    source = folder / f"{name}.yaml"
    is_source = (folder.parent / "pyproject.toml").is_file() and source.is_file()
    return folder if is_source and source.read_text("utf-8") == text else None


@cache
def _parser() -> bytes:
    """Return a digest of this parser and of the form in which lists are kept."""
    here = Path(__file__).parent
    sources = [*sorted(here.glob("*.py")), here.parent / "dtypes.py", here.parent / "targets.py"]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).digest()


def _stamp(text: str) -> str:
    """Return the stamp of a file that this parser made of a text."""
    return hashlib.sha256(_parser() + text.encode()).hexdigest()


def _read(name: str, stamp: str) -> dict[str, Any] | None:
    """Return a file's records, as arrays; None if there is none, or one of something else."""
    try:
        row = json.loads(_data().joinpath(FOLDER, f"{name}.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return row if isinstance(row, dict) and row.get("stamp") == stamp else None


def _write(folder: Path, name: str, text: str, file: ListFile) -> None:
    """Put a file in place as a whole, whoever else reads or writes it."""
    from amp_rewrite.graph.io.atomic import Replacement  # nothing is written for most who read

    row: dict[str, Any] = {
        "stamp": _stamp(text),
        "precision": file.precision,
        "target": file.target,
        "extend": file.extend,
        **{key: [astuple(record) for record in getattr(file, key)] for key in _RECORDS},
    }
    (folder / FOLDER).mkdir(exist_ok=True)
    with Replacement(str(folder / FOLDER), f"{name}.json") as output:
        output.file.write(json.dumps(row, separators=(",", ":")).encode())
        output.commit(f"{name}.json")


def _restore_file(name: str, row: dict[str, Any]) -> ListFile:
    return ListFile(
        name,
        row["precision"],
        row["target"],
        row["extend"],
        [Removal(o, d, ListName(n) if n else None, at) for o, d, n, at in row["removals"]],
        [_entry(*values) for values in row["entries"]],
        [NoKernel(*values) for values in row["no_kernels"]],
        [NodeRule(node, v, ListName(n), why, at) for node, v, n, why, at in row["node_rules"]],
    )


def _entry(op: str, domain: str, name: str, why: str, *rest: Any) -> Entry:
    since, until, when, no_kernel, where, custom, *others = rest
    conditions = tuple(Condition(attribute, tuple(values)) for attribute, values in when)
    said = None if custom is None else Custom(*map(tuple, custom))
    last = (conditions, no_kernel, where, said, *others)
    return Entry(op, domain, ListName(name), why, since, until, *last)
