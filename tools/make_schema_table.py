#!/usr/bin/env python3
"""Write lists/schemas/ from the schemas of the installed ONNX Runtime.

Usage: make_schema_table.py [FOLDER]

com.microsoft.json has all of its own domain; ai.onnx.json what it has in ONNX's and models use:
SimplifiedLayerNormalization. The others there are experiments, or stand for nodes of its own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import onnxruntime
from onnxruntime.capi import (
    onnxruntime_pybind11_state as state,  # pyright: ignore[reportAttributeAccessIssue] compiled
)

TABLES = {"com.microsoft": None, "ai.onnx": ("SimplifiedLayerNormalization",)}
"""Domain -> the operators of it that are written; None for all."""

DEFAULT = Path(__file__).resolve().parent.parent / "lists" / "schemas"


def port(p: Any) -> dict[str, Any]:
    """Return a formal parameter as a JSON object."""
    option = str(p.option).rsplit(".", 1)[-1]
    return {
        "name": p.name,
        "variable": p.typeStr,
        "optional": option == "Optional",
        "variadic": option == "Variadic",
        "homogeneous": p.isHomogeneous,
    }


def row(schema: Any) -> dict[str, Any]:
    """Return a schema as a JSON object."""
    return {
        "op": schema.name,
        "since": schema.since_version,
        "inputs": [port(p) for p in schema.inputs],
        "outputs": [port(p) for p in schema.outputs],
        "variables": {
            c.type_param_str: sorted(c.allowed_type_strs) for c in schema.type_constraints
        },
        "attributes": sorted(schema.attributes),
    }


def main() -> None:
    """Write the tables, one schema a line."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    for domain, wanted in TABLES.items():
        write(folder / f"{domain}.json", domain, wanted)


def write(output: Path, domain: str, wanted: tuple[str, ...] | None) -> None:
    """Write the table of a domain."""
    own = "" if domain == "ai.onnx" else domain
    found = [s for s in state.get_all_operator_schema() if s.domain == own]
    found = [s for s in found if wanted is None or s.name in wanted]
    newest: dict[str, Any] = {}
    for schema in sorted(found, key=lambda s: (s.name, s.since_version)):
        newest[schema.name] = schema
    lines = ",\n  ".join(json.dumps(row(s)) for s in newest.values())
    head = json.dumps(f"onnxruntime {onnxruntime.__version__}")
    source = json.dumps("onnxruntime.capi.onnxruntime_pybind11_state.get_all_operator_schema()")
    output.write_text(
        f'{{"runtime": {head},\n "source": {source},\n "schemas": [\n  {lines}\n ]}}\n', "utf-8"
    )
    sys.stdout.write(f"{len(newest)} schemas -> {output}\n")


if __name__ == "__main__":
    main()
