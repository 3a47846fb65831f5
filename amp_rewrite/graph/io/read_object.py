"""Read a model of onnx_ir into numbers, checked: it becomes messages that refer to its tensors."""

from __future__ import annotations

import onnx_ir as ir

from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.io.datafile import all_tensors
from amp_rewrite.graph.io.model_files import Place
from amp_rewrite.graph.io.read_flat import checked
from amp_rewrite.graph.io.write import ModelWriter
from amp_rewrite.graph.proto.external import HELD, ExternalFiles, Held
from amp_rewrite.graph.proto.flat_proto import FlatProto
from amp_rewrite.graph.tensors import stored
from amp_rewrite.graph.traverse import nodes_in


def read_object(model: ir.Model) -> FlatProto:
    """Return the flat graph of a model, which may change afterwards, apart from its tensors.

    Raises:
        GraphError: The graph is not valid.
        StepError: It describes itself as a training step in another way than steps do.
    """
    tensors = {id(t): t for t in all_tensors(model) if t.dtype is not ir.DataType.STRING}
    places = {key: Place(HELD, i, t.nbytes) for i, (key, t) in enumerate(tensors.items())}
    held = [Held(stored(tensor), tensor) for tensor in tensors.values()]
    flat = checked(ModelWriter(model, places).message(), ExternalFiles(None, held), "model")
    _keep_names(flat, model.graph)
    for function, attached in zip(model.functions.values(), flat.attached.values(), strict=True):
        _keep_names(attached.graph, function.graph)
    return flat


def _keep_names(flat: FlatGraph, graph: ir.Graph) -> None:
    """Call the nodes that have no name in a file as the objects do."""
    if isinstance(flat, FlatProto) and flat.given:
        flat.keep_names([node.name or "" for top in graph for node in nodes_in(top)])
