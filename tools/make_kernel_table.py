#!/usr/bin/env python3
"""Write lists/kernels/<provider>_<version>.json: the kernels of an ONNX Runtime.

Usage: make_kernel_table.py [--rows ROWS.json --version VERSION] [--provider NAME]
                            [--package PACKAGE] [--output FOLDER or TABLE.json]

Without --rows the installed runtime is asked. A provider that is a package of its own has to be
named, with the Python package that has its library unless a target stands for it. ROWS is what was
asked elsewhere: {"runtime": "...", "source": "...", "kernels": [...]} with rows as in
tools/kernel_rows.py. `--target TABLE.json` of amp-rewrite reads a table.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from kernel_rows import ask_runtime, table_for, to_text

from amp_rewrite.errors import AmpError, KernelTableError
from amp_rewrite.targets import provider_named

DEFAULT_OUTPUT = Path(__file__).resolve().parent.parent / "lists" / "kernels"


def read_rows(path: Path) -> dict[str, Any]:
    """Return rows that were asked of a runtime elsewhere.

    Raises:
        KernelTableError: The file cannot be read.
    """
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise KernelTableError("the rows cannot be read", where=path, found=str(error)) from error


def main(arguments: list[str] | None = None) -> int:
    """Make the tables; return the exit status."""
    parser = argparse.ArgumentParser(description="Write the kernel tables of an ONNX Runtime.")
    parser.add_argument("--rows", type=Path, help="rows asked of a runtime elsewhere")
    parser.add_argument("--version", help="the version of the runtime that ROWS came from")
    parser.add_argument("--provider", help="only this execution provider, or that of this target")
    parser.add_argument("--package", help="Python package that contains the provider")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help="a folder, or a .json")
    options = parser.parse_args(arguments)
    if options.rows and not options.version:
        parser.error("--rows needs --version")
    if options.output.suffix == ".json" and options.provider is None:
        parser.error("one table is of one --provider")
    try:
        only = None if options.provider is None else provider_named(options.provider)
        answer = read_rows(options.rows) if options.rows else ask_runtime(only, options.package)
        version = options.version or answer["runtime"].split()[-1]
        found = {row["provider"] for row in answer["kernels"]}
        for provider in sorted(found) if only is None else [only]:
            table = table_for(answer, provider)
            is_file = options.output.suffix == ".json"
            path = options.output if is_file else options.output / f"{provider}_{version}.json"
            path.write_text(to_text(table), "utf-8")
            print(f"{sum(map(len, table['kernels'].values()))} operators -> {path}")
    except (AmpError, OSError) as error:
        print(f"make_kernel_table: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
