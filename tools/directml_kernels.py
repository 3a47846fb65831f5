#!/usr/bin/env python3
"""Write the kernel table of DirectML from ONNX Runtime's docs/OperatorKernels.md.

Usage: directml_kernels.py OperatorKernels.md VERSION [--output DIR]

The page is generated from the registered kernels (gen_opkernel_doc.py of ONNX Runtime).
A row has an operator ("" for that of the row above), its parameters, the versions ("13+", "[7, 12]"
or "12") and the types, "**T** = tensor(float), tensor(float16)<br/> **T1** = ...".
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernel_rows import table_for, to_text

from amp_rewrite.targets import DIRECTML

DEFAULT_OUTPUT = Path(__file__).resolve().parent.parent / "lists" / "kernels"

_SECTION = f"## Operators implemented by {DIRECTML}"
_DOMAIN = re.compile(r"\*\*Operator Domain:\*\* \*(.+)\*")
_VERSIONS = re.compile(r"\[?(\d+)(?:, (\d+)\]|(\+))?")
_TYPES = re.compile(r"\*\*(\w+)\*\* = ([^*<|]+)")


def rows(page: str) -> Iterator[dict[str, Any]]:
    """Yield the kernels of DirectML on the page."""
    section = page.split(_SECTION, 1)[1].split("\n## ", 1)[0]
    domain = op = ""
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        titled = _DOMAIN.search(line)
        versions = _VERSIONS.fullmatch(cells[2]) if len(cells) == 4 else None
        if titled:
            domain = "" if titled[1] == "ai.onnx" else titled[1]
        elif line.startswith("|") and versions:
            op = cells[0] or op
            since, until, is_open = versions.groups()
            yield {
                "provider": DIRECTML,
                "domain": domain,
                "op": op,
                "since": int(since),
                "until": None if is_open else int(until or since),
                "types": {name: types.strip().split(", ") for name, types in _TYPES.findall(line)},
            }


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description="Write the kernel table of DirectML.")
    parser.add_argument("page", type=Path, help="docs/OperatorKernels.md of ONNX Runtime")
    parser.add_argument("version", help="the version of ONNX Runtime that the page is of")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    options = parser.parse_args()
    answer = {
        "runtime": f"onnxruntime-directml {options.version}",
        "source": "docs/OperatorKernels.md of github.com/microsoft/onnxruntime",
        "kernels": list(rows(options.page.read_text("utf-8"))),
    }
    path = options.output / f"{DIRECTML}_{options.version}.json"
    path.write_text(to_text(table_for(answer, DIRECTML)), "utf-8")
    print(f"{len(answer['kernels'])} kernels -> {path}")


if __name__ == "__main__":
    main()
