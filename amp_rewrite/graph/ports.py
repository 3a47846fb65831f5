"""Which type variable each actual input and output of a node belongs to.

The names are those of painting.md, section 1: a schema's type-constraint letter (`T`), one per
index for a heterogeneous variadic (`V[0]`), the type string itself for a port of fixed type
(`tensor(float)`), and `in[0]`/`out[0]` for the ports of an operator without a schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from amp_rewrite.graph import schemas
from amp_rewrite.graph.schemas import Port, Schema
from amp_rewrite.graph.traits import Trait, having

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass(frozen=True, slots=True)
class Ports:
    """The type variables of one call of an operator.

    Attributes:
        schema: The operator's schema, or None for a custom operator or a function call.
    """

    schema: Schema | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def is_fixed(variable: str) -> bool:
    """Tell whether a variable is a fixed type ("tensor(float)") rather than a letter."""
    return variable.endswith(")")


def schema_variable(variable: str) -> str:
    """Return the schema's own name of a variable: "V" for "V[3]"."""
    return variable.split("[", 1)[0]


def opset_of(node: ir.Node, opset_imports: Mapping[str, int]) -> int:
    """Return the opset version in force for a node; 1 where its domain is not imported."""
    return opset_imports.get(node.domain, 1)


def ports_at(node: ir.Node, opset_imports: Mapping[str, int]) -> Ports:
    """Return the variables of a node, by the schema that its domain's import says."""
    opset = opset_of(node, opset_imports)
    return ports_of(node.domain, node.op_type, opset, len(node.inputs), len(node.outputs))


@cache
def ports_of(domain: str, op: str, opset: int, n_inputs: int, n_outputs: int) -> Ports:
    """Return the variables of a call with this many actual inputs and outputs."""
    schema = schemas.find(domain, op, opset)
    if schema is None:
        return opaque_ports(n_inputs, n_outputs)
    inputs = tuple(_variable(schema.input_port(i), i, len(schema.inputs)) for i in range(n_inputs))
    outputs = tuple(
        _variable(schema.output_port(i), i, len(schema.outputs)) for i in range(n_outputs)
    )
    if domain == "" and op in having(Trait.SEQUENCE):
        inputs = tuple("S" if name == "T" else name for name in inputs)
        outputs = tuple("S" if name == "T" else name for name in outputs)
    if domain == "" and op == "Scan":
        # Apart from its inputs; build_type_graph.py joins the state variables again.
        outputs = tuple(f"{name}:out" for name in outputs)
    return Ports(schema, inputs, outputs)


@cache
def opaque_ports(n_inputs: int, n_outputs: int) -> Ports:
    """Return the ports of an operator that the pass cannot see into."""
    return Ports(
        None,
        tuple(f"in[{i}]" for i in range(n_inputs)),
        tuple(f"out[{i}]" for i in range(n_outputs)),
    )


def _variable(port: Port | None, index: int, n_formals: int) -> str:
    if port is None:
        return f"in[{index}]"
    if port.variadic and not port.homogeneous:
        return f"{port.variable}[{index - (n_formals - 1)}]"
    return port.variable
