#!/usr/bin/env python3
"""Write lists/compiled.json: the built-in op lists, parsed, as `oplists.compiled` reads them.

python tools/compile_lists.py             writes the file
python tools/compile_lists.py --check     exits with 1 if the file is not what would be written
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import astuple
from pathlib import Path
from typing import Any

from amp_rewrite.oplists import parse
from amp_rewrite.oplists.compiled import NAME, checksum

LISTS = Path(__file__).resolve().parent.parent / "lists"
FILE = LISTS / NAME


def compiled() -> str:
    """Return the text of the file: a line for each record, so that a change is easy to read.

    Raises:
        ListError: A list is wrong; tools/check_lists.py says all that is.
    """
    rows = [f"{json.dumps(f'lists/{p.name}')}: {row(p)}" for p in sorted(LISTS.glob("*.yaml"))]
    return "{{\n{}\n}}\n".format(",\n".join(rows))


def row(path: Path) -> str:
    """Return what a list says, as JSON."""
    text = path.read_text("utf-8")
    file = parse.parse(text, f"lists/{path.name}")
    if file.problems:
        raise file.problems[0]
    fields = {
        "checksum": json.dumps(checksum(text)),
        "precision": json.dumps(file.precision),
        "target": json.dumps(file.target),
        "extend": json.dumps(file.extend),
        "removals": records(file.removals),
        "entries": records(file.entries),
        "no_kernels": records(file.no_kernels),
        "node_rules": records(file.node_rules),
    }
    return "{{\n{}\n}}".format(",\n".join(f'"{key}": {value}' for key, value in fields.items()))


def records(given: list[Any]) -> str:
    """Return records as JSON arrays, one a line."""
    return "[\n{}\n]".format(",\n".join(json.dumps(astuple(record)) for record in given))


def main(arguments: list[str] | None = None) -> int:
    """Write or check the file; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args(arguments)
    text = compiled()
    if not options.check:
        FILE.write_text(text, "utf-8")
        return 0
    if FILE.read_text("utf-8") == text:
        return 0
    print(f"lists/{NAME} is not current: python tools/{Path(__file__).name}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
