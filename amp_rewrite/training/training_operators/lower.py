"""Replace the operators of ai.onnx.preview.training by those of ai.onnx."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from amp_rewrite.errors import TrainingInfoError
from amp_rewrite.grad import Builder, gradients
from amp_rewrite.grad.builder.annotate import annotate
from amp_rewrite.grad.builder.known import take_place
from amp_rewrite.grad.prepare import modernise, prepare
from amp_rewrite.graph.io.load import Source, load
from amp_rewrite.graph.io.read import message_of
from amp_rewrite.graph.names import place
from amp_rewrite.training.training_operators.optimizers import OPTIMIZERS

DOMAIN = "ai.onnx.preview.training"
GRADIENT = "Gradient"

_OPSET = 17
"""The version of ai.onnx for a model that imports none."""


def lower_training_operators(source: Source) -> ir.Model:
    """Return a model without operators of ai.onnx.preview.training that computes the same.

    Adam, Adagrad and Momentum become arithmetic, Gradient the nodes of the derivative. Values keep
    their names; `training_info` stays.

    Args:
        source: A path, the bytes of a file, a ModelProto or an onnx_ir Model; not changed.

    Raises:
        LoadError: The source is not an ONNX model.
        GraphError: It is one, but the graph is not valid.
        TrainingInfoError: A training operator is not used as the standard says, or is in a subgraph
            or a function.
        GradientError: An operator before a Gradient has no gradient.
    """
    model = load(source)
    before, message = model.graph, message_of(model)
    _lower_all(model)
    if model.graph is not before and message is not None and message.training_info:
        raise TrainingInfoError(
            "a model with training_info cannot change its opset",
            found=f"opset {before.opset_imports['']}",
            remedy="raise its opset first, or delete its training_info",
        )
    return model


def _lower_all(model: ir.Model) -> None:
    """Replace the training operators of a model, in place; an old opset gets a new graph."""
    inner = [n for n in model.graph.all_nodes() if n.graph is not model.graph]
    inner += [n for function in model.functions.values() for n in function.all_nodes()]
    for node in inner:
        if node.domain == DOMAIN:
            raise TrainingInfoError(
                "a training operator inside a subgraph or a function",
                where=place(node),
                remedy="move it into the main graph",
            )
    if not any(node.domain == DOMAIN for node in model.graph):
        return
    for node in model.graph:
        if _is_gradient(node):
            _resolve(node, model.graph)
        elif node.domain == DOMAIN and node.op_type not in OPTIMIZERS:
            raise TrainingInfoError(
                "unknown training operator",
                where=place(node),
                expected=f"one of {', '.join(sorted((*OPTIMIZERS, GRADIENT)))}",
            )
    try:
        model.graph.sort()
    except ValueError as error:
        raise TrainingInfoError(
            "a Gradient differentiates what depends on itself", where=model.graph.name
        ) from error
    model.graph.opset_imports.setdefault("", _OPSET)
    modernise(model)
    prepare(model)
    b = Builder(model, scope="training")
    _record_types(model.graph, model.graph.opset_imports)
    # The nodes before the first one are differentiable.
    while (node := next((n for n in model.graph if n.domain == DOMAIN), None)) is not None:
        _lower(node, b)
    model.graph.opset_imports.pop(DOMAIN, None)


def _is_gradient(node: ir.Node) -> bool:
    return node.domain == DOMAIN and node.op_type == GRADIENT


def _resolve(node: ir.Node, graph: ir.Graph) -> None:
    """Append the value that y names to the inputs of a Gradient, so that sorting puts it before."""
    xs, zs = node.attributes.get_strings("xs", []), node.attributes.get_strings("zs", [])
    name = node.attributes.get_string("y")
    if not xs or name is None:
        raise TrainingInfoError("attributes 'xs' and 'y' are needed", where=place(node))
    found = [None if v is None else v.name for v in node.inputs]
    if found != [*xs, *zs] or len(node.outputs) > len(xs):
        raise TrainingInfoError(
            "a Gradient must read the tensors that xs and zs name",
            where=place(node),
            found=f"inputs {', '.join(map(str, found))}, {len(node.outputs)} outputs",
            expected=f"inputs {', '.join((*xs, *zs))}, and up to {len(xs)} outputs",
        )
    values = [*graph.inputs, *graph.initializers.values(), *(v for n in graph for v in n.outputs)]
    y = next((v for v in values if v.name == name), None)
    if y is None:
        raise TrainingInfoError(
            f"no value is called {name!r}", where=place(node), expected="the name of a value"
        )
    node.resize_inputs(len(found) + 1)
    node.replace_input_with(len(found), y)


def _record_types(graph: ir.Graph, opsets: Mapping[str, int]) -> None:
    """Record the types and shapes of derivatives, those of their variables, and of later nodes."""
    for node in graph:
        if _is_gradient(node):
            for value, x in zip(node.outputs, node.inputs, strict=False):
                if x is not None:
                    value.type = value.type or x.type
                    value.shape = None if x.shape is None else x.shape.copy()
        elif any(v.name and (v.type is None or v.shape is None) for v in node.outputs):
            annotate(node, opsets)


def _lower(node: ir.Node, b: Builder) -> None:
    """Let new nodes take the place of one; they keep the names of its outputs."""
    existing, start = set(b.graph), len(b.added)
    results = (OPTIMIZERS.get(node.op_type) or _lower_gradient)(node, b)
    taken: set[ir.Value] = set()
    for old, new in zip(node.outputs, results, strict=False):
        if not old.name:
            continue
        producer = new.producer()
        if new in taken or producer is None or producer in existing:
            new = b.op("Identity", new)
        taken.add(new)
        old.type = new.type or old.type  # whatever the file declares
        take_place(new, old)
    if _is_gradient(node):
        b.graph.sort()
    else:
        added = b.added[start:]
        b.graph.remove(added)
        b.graph.insert_before(node, added)
    b.graph.remove(node, safe=True)


def _lower_gradient(node: ir.Node, b: Builder) -> list[ir.Value]:
    """Return the derivatives of the sum of y with respect to each of xs.

    The tensors of xs and zs are independent, even if one is computed from another; those of zs are
    constant.
    """
    *places, y = [v for v in node.inputs if v is not None]
    count = len(node.attributes.get_strings("xs", []))
    for value in (*places[:count], y):
        if value.dtype is not None and not value.dtype.is_floating_point():
            raise TrainingInfoError(
                f"{value.name!r} cannot be differentiated",
                where=place(node),
                found=value.dtype.name.lower(),
                expected="a floating-point tensor",
            )
    computed = [v for v in places if v.producer() is not None]
    cut = {v: ir.Value(name=v.name, type=v.type, shape=v.shape) for v in computed}
    _exchange(cut)
    wrt, end = [cut.get(v, v) for v in places[:count]], cut.get(y, y)
    derivatives = gradients(b, {end: b.ones_like(end)}, wrt, sparse=False)
    pairs = zip(derivatives, wrt, strict=True)
    results = [g if isinstance(g, ir.Value) else b.zeros_like(x) for g, x in pairs]
    back = {new: old for old, new in cut.items()}
    _exchange(back)
    return [back.get(v, v) for v in results]


def _exchange(values: Mapping[ir.Value, ir.Value]) -> None:
    """Let nodes read the values of the mapping instead of its keys."""
    for old, new in values.items():
        for node, index in list(old.uses()):
            node.replace_input_with(index, new)
