#!/usr/bin/env python3
"""Write the kernel table of Core ML from ONNX Runtime's page of operators of ML programs.

Usage: coreml_kernels.py PAGE VERSION [--output DIR]

PAGE names the operators that become an ML program. Of types it says only where there is no float16
("both inputs are fp32"); the provider's base_op_builder.cc takes float32 and float16, and one type
for a whole call.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernel_rows import table_for, to_text

from amp_rewrite.dtypes import FLOAT16, FLOAT32
from amp_rewrite.graph import schemas
from amp_rewrite.graph.elements import tensor
from amp_rewrite.targets import COREML

DEFAULT_OUTPUT = Path(__file__).resolve().parent.parent / "lists" / "kernels"

PAGE = "tools/ci_build/github/apple/coreml_supported_mlprogram_ops"
"""Where the page is in ONNX Runtime's repository, in Markdown."""

NEWEST = 24
"""The newest opset that base_op_builder.h takes."""

SPELT = {"Argmax": "ArgMax"}
"""What the page calls operators -> what ONNX does."""

_ROW = re.compile(r"^\|ai\.onnx:(\w+)\|(.*)\|$", re.MULTILINE)


def rows(page: str) -> Iterator[dict[str, Any]]:
    """Yield a kernel for each operator and type; one that converts types has both in one."""
    for name, note in _ROW.findall(page):
        op = SPELT.get(name) or str(name)
        types = (FLOAT32,) if "fp32" in note else (FLOAT32, FLOAT16)
        floats = [tensor(dtype.number) for dtype in types]
        for schema in versions_of(op):
            variables = [n for n, admitted in schema.variables.items() if set(floats) <= admitted]
            for together in [floats] if op == "Cast" else [[one] for one in floats]:
                yield {
                    "provider": COREML,
                    "domain": "",
                    "op": op,
                    "since": schema.since,
                    "until": None,
                    "types": dict.fromkeys(variables, together),
                }


def versions_of(op: str) -> list[schemas.Schema]:
    """Return the schemas of an operator that the provider takes, one for each of its versions."""
    found = (schemas.find("", op, opset) for opset in range(1, NEWEST + 1))
    return list({schema.since: schema for schema in found if schema is not None}.values())


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description="Write the kernel table of Core ML.")
    parser.add_argument("page", type=Path, help=f"{PAGE}.md of ONNX Runtime")
    parser.add_argument("version", help="the version of ONNX Runtime that the page is of")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    options = parser.parse_args()
    answer = {
        "runtime": f"onnxruntime {options.version}",
        "source": f"{PAGE}.md and core/providers/coreml of github.com/microsoft/onnxruntime",
        "kernels": list(rows(options.page.read_text("utf-8"))),
    }
    path = options.output / f"{COREML}_{options.version}.json"
    path.write_text(to_text(table_for(answer, COREML)), "utf-8")
    print(f"{len(answer['kernels'])} kernels -> {path}")


if __name__ == "__main__":
    main()
