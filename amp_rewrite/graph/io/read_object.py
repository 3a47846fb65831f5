"""A model of onnx_ir in numbers: it becomes messages that refer to its tensors."""

from __future__ import annotations

from functools import partial

import onnx
import onnx_ir as ir

from amp_rewrite.graph.clone import values_in
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.infer import Types, infer
from amp_rewrite.graph.io.model_files import Place
from amp_rewrite.graph.io.read_flat import checked
from amp_rewrite.graph.io.write import ModelWriter
from amp_rewrite.graph.proto.external import HELD, ExternalFiles, Held
from amp_rewrite.graph.proto.number_model import number_model
from amp_rewrite.graph.tensors import all_tensors, stored
from amp_rewrite.graph.traverse import nodes_in


def read_object(model: ir.Model) -> FlatGraph:
    """Return the checked flat graph of a model, which may change afterwards, but for its tensors.

    Raises:
        GraphError: The graph is not valid.
        StepError: It describes itself as a training step in another way than steps do.
    """
    proto, files = messages_of(model)
    flat = checked(proto, files, "model")
    _keep_names(flat, model.graph)
    for function, attached in zip(model.functions.values(), flat.attached.values(), strict=True):
        _keep_names(attached.graph, function.graph)
    return flat


def number_object(model: ir.Model) -> FlatGraph:
    """Return the flat graph of a model whose operators need not keep to their schemas."""
    return number_model(*messages_of(model))


def infer_types(model: ir.Model) -> Types:
    """Return the type of every value of the main graph and of its subgraphs, at any depth."""
    pairs = zip(values_in(model.graph), infer(number_object(model)), strict=True)
    return {value: type_ for value, type_ in pairs if type_ is not None}


def messages_of(model: ir.Model) -> tuple[onnx.ModelProto, ExternalFiles]:
    """Return the messages of a model, and the tensors in memory that they refer to."""
    tensors = {id(tensor): tensor for tensor in all_tensors(model) if not _is_typed(tensor)}
    places = {key: Place(HELD, number, 0) for number, key in enumerate(tensors)}
    held = [Held(partial(stored, tensor), partial(_itself, tensor)) for tensor in tensors.values()]
    return ModelWriter(model, places).message(), ExternalFiles(None, held)


def _is_typed(tensor: ir.TensorProtocol) -> bool:
    """Tell whether a message has the elements as they are spelled, not as bytes."""
    is_message = isinstance(tensor, ir.TensorProtoTensor) and not tensor.raw.HasField("raw_data")
    return is_message or tensor.dtype is ir.DataType.STRING


def _itself(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return tensor


def _keep_names(flat: FlatGraph, graph: ir.Graph) -> None:
    if flat.given:
        flat.keep_names([node.name or "" for top in graph for node in nodes_in(top)])
