"""Move a model to a newer opset with onnx's version converter, keeping what that would lose.

It drops functions, training_info, metadata and annotations, and fails on wrong shapes, such as
those of rank 0 in Paddle's exports. So only nodes, and the constants that these need, are taken
from what it returns. It gets the model without its large weights: it takes at most 2 GB.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx.checker
import onnx.version_converter
import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.io.content import Content
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.read import read_model
from amp_rewrite.graph.io.read_flat import checked
from amp_rewrite.graph.io.read_object import messages_of
from amp_rewrite.graph.proto.infer_in_place import infer_in_place
from amp_rewrite.graph.proto.shape_inference import ENDS_INFERENCE, FAILURES, ends_inference
from amp_rewrite.graph.schemas import has_kernels

CANNOT_CONVERT = (
    onnx.version_converter.ConvertError,
    onnx.checker.ValidationError,
    *FAILURES,
)
"""Exceptions of the converter for a model that it cannot convert."""

_REMEDY = "export the model at that opset instead"


def convert_opset(model: ir.Model, opset: int) -> ir.Model:
    """Return a model at a newer opset of ai.onnx; weights refer to those of the given one.

    Raises:
        OptionError: The opset is older than the model's or newer than onnx knows, the model has
            parts that the converter loses, or the converter fails.
        GraphError: What it made is not a valid model.
    """
    _check_opset(model, opset)
    if model.graph.opset_imports[""] == opset:
        return load(model)
    proto, files = messages_of(model)
    _check_parts(proto)
    slim = onnx.ModelProto.FromString(Content(proto, files).slim())
    del slim.functions[:]
    try:
        converted = converted_proto(slim, opset)
    except CANNOT_CONVERT as error:
        raise OptionError(
            f"onnx's version converter cannot move the model to opset {opset}",
            found=error,
            remedy=_REMEDY,
        ) from error
    _restore(proto.graph, converted.graph)
    del proto.opset_import[:]
    proto.opset_import.extend(converted.opset_import)
    return read_model(checked(proto, files, "model"))


def converted_proto(proto: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Return what onnx's converter makes of a message."""
    if ends_inference(proto):
        raise ValueError(f"nothing is known of the type that {ENDS_INFERENCE} reads")
    return onnx.version_converter.convert_version(proto, opset)


def _check_opset(model: ir.Model, opset: int) -> None:
    current, newest = model.graph.opset_imports.get(""), onnx.defs.onnx_opset_version()
    if current is None:
        raise OptionError("the model imports no opset of ai.onnx that could be raised")
    if not current <= arguments.integer("opset", opset) <= newest:
        raise OptionError(
            "the model cannot be moved to this opset",
            found=opset,
            expected=f"{current}, which it has, to {newest}, the newest that onnx knows",
        )


def _check_parts(proto: onnx.ModelProto) -> None:
    """Refuse what the converter would lose or leave at the old opset."""
    opsets = {entry.domain: entry.version for entry in proto.opset_import}
    called = [f for f in proto.functions if not has_kernels(f.domain, f.name, f.overload, opsets)]
    parts = {
        "model-local functions": len(called),
        "training_info": len(proto.training_info),
    }
    for name, count in parts.items():
        if count:
            raise OptionError(
                f"onnx's version converter does not take a model with {name}",
                found=count,
                remedy=_REMEDY,
            )


def _restore(before: onnx.GraphProto, after: onnx.GraphProto) -> None:
    """Give a graph the nodes of its converted form, and the constants that these need."""
    names_before = {tensor.name for tensor in before.initializer} | {v.name for v in before.input}
    sources = {key: node for node in before.node for key in _keys(node)}
    before.initializer.extend(t for t in after.initializer if t.name not in names_before)
    for node in after.node:
        source = next((sources[key] for key in _keys(node) if key in sources), None)
        if source is not None:
            _describe(node, source)
    del before.node[:]
    before.node.extend(after.node)


def _keys(node: onnx.NodeProto) -> Iterator[tuple[str, str, str]]:
    """Yield what a node and its converted form have in common: an output, or the name.

    What the converter puts around a node may take over its output, but calls another operator.
    """
    yield from ((node.op_type, "output", name) for name in node.output if name)
    if node.name:
        yield node.op_type, "name", node.name


def _describe(node: onnx.NodeProto, source: onnx.NodeProto) -> None:
    """Give a converted node what its former self had besides operator, inputs and attributes."""
    if source.HasField("doc_string"):
        node.doc_string = source.doc_string
    del node.metadata_props[:]
    node.metadata_props.extend(source.metadata_props)
    for converted, original in zip(_graphs(node), _graphs(source), strict=False):
        _restore(original, converted)
        converted.CopyFrom(original)


def _graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs inside a node, by the names of their attributes."""
    for attribute in sorted(node.attribute, key=lambda a: a.name):
        if attribute.HasField("g"):
            yield attribute.g


def mend_shapes(model: ir.Model) -> tuple[str, ...]:
    """Give values of the main graph the shapes that inference finds, in place.

    That is done where a declared shape of an output or of a value inside contradicts the inferred
    one: its rank, or a length, differs. Inputs are trusted, and so are initializers.

    Returns:
        The names of these values; none where inference fails without the declared shapes, too.
    """
    made = [v for node in model.graph for v in node.outputs if v.shape is not None]
    declared, mended = {value: value.shape for value in made}, list[str]()
    for value in made:
        value.shape = None
    infer_in_place(model)
    for value, shape in declared.items():
        if shape is None or value.shape is None or not _contradict(shape, value.shape):
            value.shape = shape
        else:
            mended.append(value.name or "")
    return tuple(mended)


def _contradict(one: ir.Shape, other: ir.Shape) -> bool:
    """Tell whether no tensor has both shapes."""
    lengths = zip(one, other, strict=False)
    return len(one) != len(other) or any(
        a != b for a, b in lengths if isinstance(a, int) and isinstance(b, int)
    )
