"""Operator schemas: which port has which type variable, and what types a variable admits.

`ai.onnx` and `ai.onnx.ml` come from the installed onnx package; `com.microsoft`, and what ONNX
Runtime adds to `ai.onnx`, from lists/schemas, which tools/make_schema_table.py writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx.defs
from onnx import AttributeProto

from amp_rewrite import targets

CONTRIB_DOMAIN = "com.microsoft"

_RUNTIME = "ai.onnx"
"""The table of what ONNX Runtime adds to the domain of ONNX."""

# operators: what an older onnx cannot say of them
LATER = {
    "BitCast": 26,
    "CumProd": 26,
    "CausalConvWithState": 27,
    "LinearAttention": 27,
    "SwiGLU": 28,
}
"""Operators that op lists name whatever onnx is installed -> the opset of ai.onnx that brought it.

The oldest onnx that is supported ends at opset 25."""

UNLIMITED = 2**31 - 1
"""The number in schemas where the number of inputs or outputs has no limit."""


@dataclass(frozen=True, slots=True)
class Port:
    """One formal input or output.

    Attributes:
        variable: A type variable ("T") or a fixed type string ("tensor(float)").
        variadic: The port stands for every remaining actual.
        homogeneous: All actuals of a variadic port share one type.
    """

    name: str
    variable: str
    optional: bool
    variadic: bool
    homogeneous: bool


@dataclass(frozen=True, slots=True)
class Attribute:
    """One formal attribute; of a contrib operator only the name is known."""

    type: int = AttributeProto.UNDEFINED
    required: bool = False


@dataclass(frozen=True, slots=True)
class Schema:
    """An operator's signature at one since-version.

    Attributes:
        variables: Type variable -> the type strings it admits. A fixed port type is not in it.
        n_inputs: The least and the largest number of inputs.
        n_outputs: The least and the largest number of outputs.
    """

    domain: str
    op: str
    since: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    variables: Mapping[str, frozenset[str]]
    attributes: Mapping[str, Attribute]
    deprecated: bool
    n_inputs: tuple[int, int] = (0, UNLIMITED)
    n_outputs: tuple[int, int] = (0, UNLIMITED)

    def input_port(self, index: int) -> Port | None:
        """Return the formal input that actual input `index` belongs to."""
        return _port(self.inputs, index)

    def output_port(self, index: int) -> Port | None:
        """Return the formal output that actual output `index` belongs to."""
        return _port(self.outputs, index)


def _port(ports: tuple[Port, ...], index: int) -> Port | None:
    if index < len(ports):
        return ports[index]
    if ports and ports[-1].variadic:
        return ports[-1]
    return None


@cache
def find(domain: str, op: str, opset: int) -> Schema | None:
    """Return the schema of `domain::op` in force at `opset`, or None for an unknown operator."""
    domain = "" if domain == "ai.onnx" else domain
    if domain == CONTRIB_DOMAIN:
        return _table(CONTRIB_DOMAIN).get(op)
    try:
        return _from_onnx(onnx.defs.get_schema(op, opset, domain))
    except onnx.defs.SchemaError:
        return _table(_RUNTIME).get(op) if domain == "" else None


@cache
def newest_opset(domain: str) -> int | None:
    """Return the newest opset of a domain that the installed schemas know; None if none."""
    domain = "" if domain == "ai.onnx" else domain
    history = onnx.defs.get_all_schemas_with_history()
    versions = [s.since_version for s in history if s.domain == domain]
    return onnx.defs.onnx_opset_version() if domain == "" else max(versions, default=None)


@cache
def names(domain: str) -> frozenset[str]:
    """Return every operator name that a domain has ever had."""
    domain = "" if domain == "ai.onnx" else domain
    if domain == CONTRIB_DOMAIN:
        return frozenset(_table(CONTRIB_DOMAIN))
    standard = {s.name for s in onnx.defs.get_all_schemas_with_history() if s.domain == domain}
    return frozenset(
        LATER.keys() | _table(_RUNTIME).keys() | standard if domain == "" else standard
    )


def has_kernels(domain: str, op: str, overload: str, opsets: Mapping[str, int]) -> bool:
    """Tell whether a name is that of an operator, which runtimes run with a kernel of theirs.

    ONNX Runtime 1.32 does so for ai.onnx, ai.onnx.ml and com.microsoft though the model has a
    function of that name; the body is for runtimes that lack the operator.
    """
    schema = None if overload else find(domain, op, opsets.get(domain, 1))
    return schema is not None and not schema.deprecated


def _from_onnx(schema: onnx.defs.OpSchema) -> Schema:
    def port(p: onnx.defs.OpSchema.FormalParameter) -> Port:
        option = onnx.defs.OpSchema.FormalParameterOption
        return Port(
            name=p.name,
            variable=p.type_str,
            optional=p.option == option.Optional,
            variadic=p.option == option.Variadic,
            homogeneous=p.is_homogeneous,
        )

    attributes: Any = schema.attributes
    return Schema(
        domain=schema.domain,
        op=schema.name,
        since=schema.since_version,
        inputs=tuple(port(p) for p in schema.inputs),
        outputs=tuple(port(p) for p in schema.outputs),
        variables={
            c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints
        },
        attributes={
            name: Attribute(AttributeProto.AttributeType.Value(a.type.name), a.required)
            for name, a in attributes.items()
        },
        deprecated=schema.deprecated,
        n_inputs=(schema.min_input, schema.max_input),
        n_outputs=(schema.min_output, schema.max_output),
    )


@cache
def _table(name: str) -> Mapping[str, Schema]:
    file = targets.DATA.joinpath("schemas", f"{name}.json")
    table: dict[str, Any] = json.loads(file.read_text("utf-8"))
    domain = "" if name == _RUNTIME else name
    return {row["op"]: _from_row(row, domain) for row in table["schemas"]}


def _from_row(row: dict[str, Any], domain: str) -> Schema:
    return Schema(
        domain=domain,
        op=row["op"],
        since=row["since"],
        inputs=tuple(Port(**p) for p in row["inputs"]),
        outputs=tuple(Port(**p) for p in row["outputs"]),
        variables={name: frozenset(types) for name, types in row["variables"].items()},
        attributes=dict.fromkeys(row["attributes"], Attribute()),
        deprecated=False,
    )
