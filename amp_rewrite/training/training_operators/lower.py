"""Replace the operators of ai.onnx.preview.training by those of ai.onnx."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from amp_rewrite.errors import GraphError, TrainingInfoError
from amp_rewrite.grad import Builder
from amp_rewrite.grad.builder.annotate import annotate
from amp_rewrite.grad.builder.known import take_place
from amp_rewrite.grad.oldest_opset import modernise
from amp_rewrite.grad.prepare import prepare
from amp_rewrite.graph import origin as origins
from amp_rewrite.graph.io.functions import inline
from amp_rewrite.graph.io.load import Source, load
from amp_rewrite.graph.names import place
from amp_rewrite.graph.traverse import subgraphs
from amp_rewrite.training.training_operators.gradient_operator import Scope, lower_gradient, resolve
from amp_rewrite.training.training_operators.optimizers import OPTIMIZERS

DOMAIN = "ai.onnx.preview.training"
GRADIENT = "Gradient"

_OPSET = 17
"""The version of ai.onnx for a model that imports none."""


def lower_training_operators(source: Source) -> ir.Model:
    """Return a model without operators of ai.onnx.preview.training that computes the same.

    Adam, Adagrad and Momentum become arithmetic, Gradient the nodes of the derivative, also in
    subgraphs and in functions, which are inlined. Values keep their names; `training_info` stays.

    Args:
        source: A path, the bytes of a file, a ModelProto or an onnx_ir Model; not changed.

    Raises:
        LoadError: The source is not an ONNX model.
        GraphError: It is one, but the graph is not valid.
        TrainingInfoError: A training operator is not used as the standard says.
        GradientError: What a Gradient node differentiates has no gradient.
    """
    model = load(source)
    before, origin = model.graph, origins.of(model)
    lower(model)
    if model.graph is not before and origin is not None and origin.model.training_info:
        raise TrainingInfoError(
            "a model with training_info cannot change its opset",
            found=f"opset {before.opset_imports['']}",
            remedy="raise its opset first, or delete its training_info",
        )
    return model


def lower(model: ir.Model) -> None:
    """Replace the training operators of a model, in place; an old opset gets a new graph."""
    if not any(_is_training(node) for node in model.graph.all_nodes()) and not _in_functions(model):
        return
    for graph in (model.graph, *(f.graph for f in model.functions.values())):
        _resolve(graph, ())
        _sort(graph)
    _inline(model)
    model.graph.opset_imports.setdefault("", _OPSET)
    modernise(model)
    prepare(model)
    b = Builder(model, scope="training")
    _record_types(model.graph, model.graph.opset_imports)
    while (node := _first(model.graph)) is not None:
        _lower(node, b)
    model.graph.opset_imports.pop(DOMAIN, None)


def is_optimizer(node: ir.Node) -> bool:
    """Return whether a node is Adam, Adagrad or Momentum."""
    return node.domain == DOMAIN and node.op_type in OPTIMIZERS


def is_gradient(node: ir.Node) -> bool:
    """Return whether a node is a Gradient."""
    return node.domain == DOMAIN and node.op_type == GRADIENT


def _is_training(node: ir.Node) -> bool:
    return node.domain == DOMAIN


def _in_functions(model: ir.Model) -> list[ir.Function]:
    return [f for f in model.functions.values() if any(_is_training(n) for n in f.all_nodes())]


def _inline(model: ir.Model) -> None:
    """Inline the functions that hold training operators: their bodies cannot have initializers."""
    functions = {f.identifier() for f in _in_functions(model)}
    if functions:
        model.graph.opset_imports.setdefault(DOMAIN, 1)
        try:
            inline(model, lambda function: function.identifier() in functions)
        except GraphError as error:
            raise TrainingInfoError(
                "a function with training operators cannot be inlined", found=error.found or error
            ) from error


def _record_types(graph: ir.Graph, opsets: Mapping[str, int]) -> None:
    """Record the types and shapes of derivatives, those of their variables, and of later nodes."""
    for node in graph:
        if is_gradient(node):
            for value, x in zip(node.outputs, node.inputs, strict=False):
                if x is not None:
                    value.type = value.type or x.type
                    value.shape = None if x.shape is None else x.shape.copy()
        elif any(v.name and (v.type is None or v.shape is None) for v in node.outputs):
            annotate(node, opsets)
        for inner in subgraphs(node):
            _record_types(inner, opsets)


def _resolve(graph: ir.Graph, outer: Scope) -> None:
    """Let every Gradient read the values that it names."""
    scope = (graph, *outer)
    for node in graph:
        if is_gradient(node):
            resolve(node, scope)
        elif _is_training(node) and not is_optimizer(node):
            raise TrainingInfoError(
                "unknown training operator",
                where=place(node),
                expected=f"one of {', '.join(sorted((*OPTIMIZERS, GRADIENT)))}",
            )
        for inner in subgraphs(node):
            _resolve(inner, scope)


def _sort(graph: ir.Graph) -> None:
    try:
        graph.sort()
    except ValueError as error:
        raise TrainingInfoError(
            "a Gradient differentiates what depends on itself", where=graph.name
        ) from error


def _first(graph: ir.Graph) -> ir.Node | None:
    """Return the first training node; all nodes before it are differentiable."""
    for node in graph:
        if _is_training(node):
            return node
        for inner in subgraphs(node):
            first = _first(inner)
            if first is not None:
                return first
    return None


def _lower(node: ir.Node, b: Builder) -> None:
    """Let new nodes take the place of one; they keep the names of its outputs."""
    graph = node.graph
    assert graph is not None, "the node was found in a graph"
    inner = b if graph is b.graph else b.child(graph)
    existing = set(graph)
    start = len(inner.added)
    results = (OPTIMIZERS.get(node.op_type) or lower_gradient)(node, inner)
    taken: set[ir.Value] = set()
    for old, new in zip(node.outputs, results, strict=False):
        if not old.name:
            continue
        producer = new.producer()
        fresh = producer is not None and producer not in existing and new.graph is graph
        if new in taken or not fresh:
            new = inner.op("Identity", new)
        taken.add(new)
        old.type = new.type or old.type  # what is computed, whatever the file declares
        take_place(new, old)
    if is_gradient(node):
        b.graph.sort()
    else:
        added = inner.added[start:]
        graph.remove(added)
        graph.insert_before(node, added)
    graph.remove(node, safe=True)
