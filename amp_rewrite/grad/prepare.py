"""Make a forward model ready for differentiation."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import onnx
import onnx.defs
import onnx_ir as ir
from onnx import helper

from amp_rewrite.errors import GradientError, GraphError
from amp_rewrite.grad.builder.annotate import annotate
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import copied, input_of, is_vague
from amp_rewrite.grad.rules import DIFFERENTIABLE, FORMULAS
from amp_rewrite.grad.rules.recurrent import RULES as RECURRENT
from amp_rewrite.grad.rules.recurrent import spell_recurrent
from amp_rewrite.grad.scan_as_loop import scans_as_loops
from amp_rewrite.grad.settled_shapes import settle_ceil_mode, settle_loop_shapes
from amp_rewrite.graph import elements
from amp_rewrite.graph.io.convert_opset import CANNOT_CONVERT, converted_proto
from amp_rewrite.graph.io.functions import inline
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.read_object import infer_types
from amp_rewrite.graph.io.save import to_proto
from amp_rewrite.graph.metadata_keys import PREPARED_KEY
from amp_rewrite.graph.proto.infer_in_place import infer_in_place
from amp_rewrite.graph.traits import Trait, has, having, operator
from amp_rewrite.graph.traverse import subgraphs

_LONG = 1 << 22  # elements

OLDEST = 16
"""Gradient rules hold from this opset on, from which a scatter can add."""

INITIALIZERS_ALONE = 4
"""The IR version from which an initializer need not be a graph input; ONNX Runtime never minds."""

_TARGET = 17
"""The opset that older models are converted to; 18 moves the axes of every reduction."""


def prepare(model: ir.Model) -> None:
    """Make a model ready for the walk, in place; once per model.

    Calls of functions without a rule are replaced by the function's body, whether the function is
    the model's own or the definition of an operator in the standard (Attention, say). Scans become
    Loops. The types and shapes of values that the file does not tell are recorded.

    Raises:
        GradientError: The model's opset is too old, or a function cannot be inlined.
    """
    if model.meta.get(PREPARED_KEY):
        return
    opset = model.graph.opset_imports.get("", OLDEST)
    if opset < OLDEST:
        raise GradientError(
            "the model's opset is too old for gradients",
            where="main graph",
            found=f"ai.onnx {opset}",
            expected=f"ai.onnx {OLDEST} or newer",
            remedy="convert the model with onnx.version_converter",
        )
    model.ir_version = max(model.ir_version, INITIALIZERS_ALONE)
    _inline(model)
    _record(model)
    while _expand(model):
        _inline(model)
        _record(model)
    if spell_recurrent(model):
        _record(model)
    if scans_as_loops(model):
        _record(model)
    model.meta[PREPARED_KEY] = True


def modernise(model: ir.Model) -> None:
    """Bring a model of an opset that the gradient rules do not know up to one that they do."""
    opset = model.graph.opset_imports.get("", OLDEST)
    if opset >= OLDEST:
        return
    external = [
        v.const_value
        for v in model.graph.initializers.values()
        if isinstance(v.const_value, ir.ExternalTensor)
    ]
    try:
        old = to_proto(model)
        old.ir_version = max(old.ir_version, INITIALIZERS_ALONE)
        proto = converted_proto(old, _TARGET)
        new = load(proto, base_dir=external[0].base_dir if external else None)
    except CANNOT_CONVERT as error:
        reason = str(error).rsplit(" failed: ", 1)[-1]  # without the place in the C++ source
        raise GradientError(
            "a model of this opset has no gradients",
            found=f"opset {opset}, which the converter of onnx cannot raise to {_TARGET}: {reason}",
            expected=f"opset {OLDEST} or later",
            remedy="export the model with a later opset",
        ) from error
    model.graph, model.ir_version = new.graph, new.ir_version


def record_types(model: ir.Model) -> None:
    """Record the types and shapes that the file does not tell, and change nothing else.

    For a finished training graph, once per model.
    """
    if not model.meta.get(PREPARED_KEY):
        _record(model)
        model.meta[PREPARED_KEY] = True


def _record(model: ir.Model) -> None:
    follow = not _has_long_vector(model)
    infer_in_place(model, follow=follow)
    while settle_ceil_mode(model):
        infer_in_place(model, follow=follow)
    while settle_loop_shapes(model):
        infer_in_place(model, follow=follow)
    for value, type_ in infer_types(model).items():
        if value.type is None:
            value.type = elements.to_ir(type_)
    b = Builder(model, scope="shape")
    for node in model.graph.all_nodes():
        if any(is_vague(value.shape) for value in node.outputs):
            # What inference over the whole model left open may follow node by node.
            with contextlib.suppress(GradientError):
                annotate(node, model.graph.opset_imports)
        if operator(node) in FORMULAS and node.outputs[0].shape is None:
            _spell_shapes(b, node)
        if node.op_type in RECURRENT and not node.domain:
            x = input_of(node, 0)
            x.shape = x.shape or ir.Shape([None] * 3)


def _spell_shapes(b: Builder, node: ir.Node) -> None:
    """Record the types and shapes of the outputs of an operator that onnx does not know."""
    scratch = b.child(ir.Graph([], [], nodes=()))
    start = scratch.mark()
    with contextlib.suppress(GradientError):
        for own, spelled in zip(
            node.outputs, FORMULAS[operator(node)](node, scratch), strict=False
        ):
            if spelled is not None:
                own.type, own.shape = own.type or spelled.type, own.shape or copied(spelled.shape)
    scratch.remove_unused((), start)


def _has_long_vector(model: ir.Model) -> bool:
    """Tell whether following data through the model would fill the memory.

    onnx keeps 40 bytes for each element of a vector that enters a Slice, say, whatever it is for,
    and the system ends a process that asks for too much. Shapes are inferred without data first
    where a file declares anything that such a vector could come from.
    """
    if not any(math.prod(n for n in dims if isinstance(n, int)) > _LONG for dims in _dims(model)):
        return False
    infer_in_place(model, follow=False)
    return any(len(d) == 1 and isinstance(d[0], int) and d[0] > _LONG for d in _dims(model))


def _dims(model: ir.Model) -> Iterator[Sequence[object]]:
    """Yield the known shapes of the values of the main graph."""
    graph = model.graph
    values = (*graph.inputs, *(value for node in graph for value in node.outputs))
    return (value.shape.dims for value in values if value.shape is not None)


def _inline(model: ir.Model) -> None:
    """Replace calls of functions that have no rule by their bodies."""
    if not model.functions:
        return

    def lacks_rule(function: ir.Function) -> bool:
        key = f"{function.domain}::{function.name}" if function.domain else function.name
        return key not in DIFFERENTIABLE and key not in having(Trait.NO_GRADIENT)

    try:
        inline(model, lacks_rule)
    except GraphError as error:
        raise GradientError(
            "a function cannot be inlined", where="model", found=error.found or error
        ) from error
    for node in list(model.graph.all_nodes()):
        # What made an output that the call did not have.
        nameless = not any(value.name or value.uses() for value in node.outputs)
        if nameless and node.graph is not None:
            node.graph.remove(node, safe=True)


def _expand(model: ir.Model) -> bool:
    """Turn operators that the standard defines by a function, and that have no rule, into calls."""
    changed = False
    for node in list(model.graph.all_nodes()):
        key = operator(node)
        if node.domain != "" or has(node, Trait.NO_GRADIENT):
            continue
        if key in DIFFERENTIABLE:
            continue
        if next(subgraphs(node), None) is not None:
            continue  # the inliner cannot hand a graph over to a function
        function = _body(model, node)
        if function is None:
            continue
        model.functions[function.identifier()] = function
        node.overload = function.overload
        changed = True
    return changed


def _body(model: ir.Model, node: ir.Node) -> ir.Function | None:
    """Return the function that defines a node's operator, under an overload of its own."""
    opset = model.graph.opset_imports.get("", OLDEST)
    overload = f"{node.name or node.op_type}/{len(model.functions)}"
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "")
    except onnx.defs.SchemaError:
        return None
    content = _content(schema, node, opset)
    if not content:
        return None
    proto = onnx.FunctionProto()
    proto.ParseFromString(content)
    proto.overload = overload
    # Optional outputs that a node lacks are not computed by the body.
    del proto.output[len(node.outputs) :]
    names = {name for inner in proto.node for name in inner.output} | set(proto.input)
    for name, value in zip(proto.output, node.outputs, strict=True):
        if name in names:
            continue
        if value.name:
            return None
        proto.node.append(onnx.helper.make_node("Identity", proto.input[:1], [name]))
    guard_masked_rows(proto)
    # The body is valid at the newer opset too, or the standard would define a newer body.
    for imported in proto.opset_import:
        imported.version = model.graph.opset_imports.setdefault(imported.domain, imported.version)
    made = ir.from_proto(proto)
    made.sort()  # guards were added at the end
    return made


def _content(schema: Any, node: ir.Node, opset: int) -> bytes:
    """Return the serialized definition of an operator; empty if it has none.

    The schema is an onnx.defs.OpSchema, whose stubs lack what is asked here.
    """
    if schema.has_function:
        build = schema.get_function_with_opset_version
        return _newest(schema.function_opset_versions, opset, build)
    if not schema.has_context_dependent_function:
        return b""
    message = ir.serde.serialize_node(node).SerializeToString()
    types = [_type(value) for value in node.inputs]

    def build_for(version: int) -> bytes:
        return schema.get_context_dependent_function_with_opset_version(version, message, types)

    return _newest(schema.context_dependent_function_opset_versions, opset, build_for)


def _newest(versions: list[int], opset: int, build: Callable[[int], bytes]) -> bytes:
    """Build the newest definition that an opset admits."""
    admitted = [v for v in versions if v <= opset]
    return build(max(admitted)) if admitted else b""


def _type(value: ir.Value | None) -> bytes:
    proto = onnx.TypeProto()
    if value is not None and value.type is not None:
        ir.serde.serialize_type_into(proto, value.type)
        if value.shape is not None:
            ir.serde.serialize_shape_into(proto, value.shape)
    return proto.SerializeToString()


_CASTS = having(Trait.CASTS) | {"Identity"}


def guard_masked_rows(function: onnx.FunctionProto) -> None:
    """Let a softmax whose result is replaced in masked rows read zeros there, in place.

    The definition of Attention computes where(row is masked, 0, softmax(x)) with x = -inf in all
    of a masked row. The softmax of that is NaN, and so is its gradient, y (g - sum of g y), for
    g = 0. With where(row is masked, 0, x) for x both are finite, and the gradient of x is 0, as in
    PyTorch.
    """
    makers = {name: node for node in function.node for name in node.output}
    for where in [node for node in function.node if node.op_type == "Where"]:
        softmax = makers.get(where.input[2])
        while softmax is not None and softmax.op_type in _CASTS:
            softmax = makers.get(softmax.input[0])
        if softmax is None or softmax.op_type != "Softmax":
            continue
        x = softmax.input[0]
        number, zero, kept = (f"{x}/{part}" for part in ("number", "zero", "kept"))
        softmax.input[0] = kept
        function.node.extend(
            [
                helper.make_node("Constant", [], [number], value_float=0.0),
                helper.make_node("CastLike", [number, x], [zero]),
                helper.make_node("Where", [where.input[0], zero, x], [kept]),
            ]
        )
