#!/usr/bin/env python3
"""Write lists/kernels/<provider>_<version>.json: the kernels of an ONNX Runtime.

Usage: make_kernel_table.py [--rows ROWS.json --version VERSION] [--provider NAME] [--output DIR]

Without --rows the installed runtime is asked, as `amp-rewrite kernels` asks it. A provider that is
a package of its own has to be named. ROWS is what was asked elsewhere: {"runtime": "...", "source":
"...", "kernels": [...]} with rows as in amp_rewrite/kernels/kernel_rows.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from amp_rewrite.errors import AmpError, KernelTableError
from amp_rewrite.kernels.kernel_rows import ask_runtime, table_for, to_text

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
    parser.add_argument("--provider", help="only this execution provider")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    options = parser.parse_args(arguments)
    if options.rows and not options.version:
        parser.error("--rows needs --version")
    try:
        answer = read_rows(options.rows) if options.rows else ask_runtime(options.provider)
        version = options.version or answer["runtime"].split()[-1]
        found = {row["provider"] for row in answer["kernels"]}
        for provider in sorted(found) if options.provider is None else [options.provider]:
            table = table_for(answer, provider)
            path = options.output / f"{provider}_{version}.json"
            path.write_text(to_text(table), "utf-8")
            print(f"{sum(map(len, table['kernels'].values()))} operators -> {path}")
    except (AmpError, OSError) as error:
        print(f"make_kernel_table: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
