"""The contrib operators of the installed runtime, with which the schema table is compared."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from amp_rewrite import targets
from amp_rewrite.errors import RuntimeMissingError
from amp_rewrite.graph import schemas
from amp_rewrite.graph.elements import FLOAT32_TYPES
from amp_rewrite.runtimes.ort.listing import operator_schemas, runtime_in_words


@dataclass(frozen=True, slots=True)
class RuntimeOperators:
    """The contrib operators of the installed runtime.

    Attributes:
        runtime: The runtime in words.
        is_the_tables: Whether it is the runtime that lists/schemas/com.microsoft.json came from.
        float_capable: The com.microsoft operators that have a float32 port.
    """

    runtime: str
    is_the_tables: bool
    float_capable: frozenset[str]


@cache
def runtime_operators() -> RuntimeOperators | None:
    """Return what the installed ONNX Runtime's schema registry has; None if there is no runtime."""
    try:
        found, name = operator_schemas(), runtime_in_words()
    except (RuntimeMissingError, ImportError, OSError, AttributeError):
        return None
    capable = {s.name for s in found if s.domain == schemas.CONTRIB_DOMAIN and _has_float32(s)}
    table = targets.DATA.joinpath("schemas", f"{schemas.CONTRIB_DOMAIN}.json")
    made_from = json.loads(table.read_text("utf-8"))["runtime"]
    return RuntimeOperators(name, name == made_from, frozenset(capable))


def _has_float32(schema: Any) -> bool:
    admitted = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    ports = [p.typeStr for p in (*schema.inputs, *schema.outputs)]
    return any(t in FLOAT32_TYPES for port in ports for t in admitted.get(port, [port]))
