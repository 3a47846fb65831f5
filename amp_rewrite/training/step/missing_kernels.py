"""Operators of a step that a target has no kernel for, as its kernel table says."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.errors import UnloadableError
from amp_rewrite.graph.infer import Types
from amp_rewrite.graph.io.read_object import infer_types
from amp_rewrite.graph.ports import is_fixed, opset_of, ports_at, schema_variable
from amp_rewrite.kernels.runnable import lacks_kernel
from amp_rewrite.targets import Target


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
