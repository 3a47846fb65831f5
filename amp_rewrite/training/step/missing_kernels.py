"""Operators of a step that a target has no kernel for, spelled out in those that it has.

A node without a kernel runs on the CPU, and what it reads and makes is copied between the two in
every step. Whether there is a kernel, the target's kernel table says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import onnx_ir as ir

from amp_rewrite.errors import UnloadableError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import input_of, take_place
from amp_rewrite.grad.prepare import record_types
from amp_rewrite.graph.elements import tensor
from amp_rewrite.graph.infer import Types
from amp_rewrite.graph.io.read_object import infer_types
from amp_rewrite.graph.metadata_keys import PART_KEY, SOURCE_KEY
from amp_rewrite.graph.ports import is_fixed, opset_of, ports_at, schema_variable
from amp_rewrite.kernels.kernel_table import KernelTable, table_of
from amp_rewrite.kernels.runnable import lacks_kernel
from amp_rewrite.targets import Target

_SCOPE = "missing_kernels"


def lower_missing(model: ir.Model, target: Target) -> None:
    """Replace nodes of the main graph for which the target has no kernel, in place."""
    table = table_of(target)
    if table is None:
        return
    nodes = [n for n in model.graph if n.domain == "" and n.op_type in _RULES]
    missing = [node for node in nodes if not _has_kernel(table, model, node)]
    if not missing:
        return
    record_types(model)
    b = Builder(model, scope=_SCOPE)
    for node in missing:
        before = len(b.added)
        results = _RULES[node.op_type](b, node)
        if results is None:
            continue
        origin = {k: v for k, v in node.metadata_props.items() if k in (PART_KEY, SOURCE_KEY)}
        for added in b.added[before:]:
            added.metadata_props.clear()
            added.metadata_props.update(origin)
        for old, new in zip(node.outputs, results, strict=False):
            if new is not None:
                take_place(new, old)
        b.graph.remove(node, safe=True)
    model.graph.sort()


def _has_kernel(table: KernelTable, model: ir.Model, node: ir.Node) -> bool:
    first = next(value for value in node.inputs if value is not None)
    types = {} if first.dtype is None else {"T": tensor(first.dtype.value)}
    return table.has_kernel("", node.op_type, opset_of(node, model.graph.opset_imports), types)


def _sum(b: Builder, node: ir.Node) -> list[ir.Value | None] | None:
    """Add the inputs one after the other, as the kernels of Sum do."""
    terms = [value for value in node.inputs if value is not None]
    return [reduce(b.add, terms) if len(terms) > 1 else b.op("Identity", *terms)]


def _space_to_depth(b: Builder, node: ir.Node) -> list[ir.Value | None] | None:
    """Move blocks of space (N, C, H, W) into channels: (N, b * b * C, H / b, W / b).

    None where C, H or W is not known.
    """
    x, size = input_of(node, 0), node.attributes["blocksize"].as_int()
    shape = [] if x.shape is None else list(x.shape)
    lengths = [length for length in shape[1:] if isinstance(length, int)]
    if len(lengths) != 3:
        return None
    channels, height, width = lengths
    cut = b.reshape(x, [0, channels, height // size, size, width // size, size])
    moved = b.transpose(cut, [0, 3, 5, 1, 2, 4])
    return [b.reshape(moved, [0, channels * size * size, height // size, width // size])]


_RULES: dict[str, Callable[[Builder, ir.Node], list[ir.Value | None] | None]] = {
    "SpaceToDepth": _space_to_depth,
    "Sum": _sum,
}


def refuse_unloadable(step: ir.Model, target: Target) -> None:
    """Refuse a step with a node that a target has no kernel for; see `lacks_kernel`."""
    types = infer_types(step)
    for node in step.graph.all_nodes():
        variables = _variables(node, step, types)
        opset = opset_of(node, step.graph.opset_imports)
        if variables and lacks_kernel(target, (node.domain, node.op_type, opset), variables):
            type_names = ", ".join(sorted(set(variables.values())))
            raise UnloadableError(
                f"ONNX Runtime for {target.name} has no kernel for a node of the step, so that it "
                "does not load; nothing was written",
                step,
                where=node.name or node.outputs[0].name,
                found=f"{node.op_type} of {type_names}, opset {opset}",
                remedy="put float32 around this node in the model, or choose another target",
            )


def _variables(node: ir.Node, step: ir.Model, types: Types) -> dict[str, str]:
    """Return the types of a node: the schema's name of each variable that is known -> type."""
    ports = ports_at(node, step.graph.opset_imports)
    if ports.schema is None:
        return {}
    pairs = [*zip(ports.inputs, node.inputs, strict=True)]
    pairs += zip(ports.outputs, node.outputs, strict=True)
    return {
        schema_variable(name): types[value]
        for name, value in pairs
        if value is not None and value in types and not is_fixed(name)
    }
