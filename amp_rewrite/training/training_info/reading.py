"""From ModelProto.training_info to a TrainOp."""

from __future__ import annotations

import os
from collections.abc import Sequence

import onnx
import onnx_ir as ir

from amp_rewrite.base import arguments
from amp_rewrite.errors import TrainingInfoError
from amp_rewrite.graph import origin as origins
from amp_rewrite.graph.io.load import Source, load
from amp_rewrite.graph.metadata_keys import ROLES_KEY
from amp_rewrite.training.graph.training_graph import training_graph
from amp_rewrite.training.optimizers.train_op import TrainOp
from amp_rewrite.training.step.cut_step import values_by_name
from amp_rewrite.training.training_info.combine import combine_all
from amp_rewrite.training.training_info.initialization import run_initialization
from amp_rewrite.training.training_info.lower import lower
from amp_rewrite.training.training_info.roles import Roles, find_roles


def read_training_info(
    source: Source,
    index: int | None = None,
    *,
    initialize: bool = True,
    base_dir: str | os.PathLike[str] | None = None,
) -> TrainOp:
    """Return the training step that a model describes in the standard's own format.

    The algorithm is appended to the inference graph and its training operators are lowered. The
    initializers with an update become states; so does the learning rate of an optimizer operator,
    so that it can be set. The inputs of both graphs are fed. `TrainingSession` runs the result, and
    exports the inference graph with the trained weights.

    Args:
        source: A path, the bytes of a file, a ModelProto or an onnx_ir Model; not changed.
        index: The only training_info to read; by default one step runs all of them in order, and
            each sees the tensors that those before it have updated.
        initialize: Run the initialization graph, on ONNX Runtime, and start from what it gives;
            otherwise start from the initializers as they are in the file.
        base_dir: The folder that external data of a ModelProto or of bytes are relative to.

    Raises:
        LoadError: The source is not an ONNX model.
        GraphError: One of the graphs is not valid.
        TrainingInfoError: There is no training_info, or its bindings or
            operators are not as the standard says.
        GradientError: What a Gradient node differentiates has no gradient.
        RuntimeMissingError: There is an initialization, and ONNX Runtime is not installed.
        RunError: ONNX Runtime cannot run the initialization.
    """
    initialize = arguments.switch("initialize", initialize)
    model = load(source, base_dir=base_dir)
    folder = _folder(source, base_dir)
    infos = combine_all(model, _choose(model, index), folder)
    updates = _bindings(infos, model.graph)
    for info in infos if initialize else ():
        run_initialization(model, info, folder)
    roles = _roles(infos, model.graph, updates)
    inference = _inference(model, source, base_dir)
    lower(model)
    return _train_op(model, inference, updates, roles)


def has_training_info(model: ir.Model) -> bool:
    """Return whether a model that `amp_rewrite.load` returned describes a training step."""
    return bool(_infos(model))


def _infos(model: ir.Model) -> list[onnx.TrainingInfoProto]:
    origin = origins.of(model)
    return [] if origin is None else list(origin.model.training_info)


def _folder(source: Source, base_dir: str | os.PathLike[str] | None) -> str | None:
    if base_dir is not None:
        return os.fspath(base_dir)
    if isinstance(source, str | os.PathLike):
        return os.path.dirname(os.path.abspath(os.fspath(source)))
    return None


def _choose(model: ir.Model, index: int | None) -> list[onnx.TrainingInfoProto]:
    infos = _infos(model)
    if not infos:
        raise TrainingInfoError(
            "the model has no training_info",
            remedy="build a training step with an optimizer's minimize instead",
        )
    if index is None:
        return infos
    position = arguments.integer("index", index, low=-len(infos))
    if position >= len(infos):
        raise TrainingInfoError(
            "no training_info of this index", found=position, expected=f"below {len(infos)}"
        )
    return [infos[position]]


def _bindings(infos: Sequence[onnx.TrainingInfoProto], graph: ir.Graph) -> dict[str, str]:
    """Return initializer -> the value that it takes after a step."""
    outputs = {v.name for v in graph.outputs}
    bindings: dict[str, str] = {}
    for binding in (binding for info in infos for binding in info.update_binding):
        where = f"training_info, update_binding of {binding.key!r}"
        if binding.key in bindings:
            raise TrainingInfoError("a tensor is bound twice", where=where)
        if binding.key not in graph.initializers:
            raise TrainingInfoError(
                "the bound tensor is not an initializer",
                where=where,
                expected="an initializer of the inference graph or of the algorithm",
            )
        if binding.value not in outputs:
            raise TrainingInfoError(
                "the new value is not an output",
                where=where,
                found=repr(binding.value),
                expected="an output of the algorithm or of the inference graph",
            )
        bindings[binding.key] = binding.value
    if not bindings:
        raise TrainingInfoError("the training_info updates nothing", expected="an update_binding")
    return bindings


def _roles(
    infos: Sequence[onnx.TrainingInfoProto], combined: ir.Graph, updates: dict[str, str]
) -> Roles:
    """Return the roles that the algorithm tells, else those that can be inferred."""
    for entry in infos[0].algorithm.metadata_props if len(infos) == 1 else ():
        if entry.key == ROLES_KEY:
            return Roles.from_json(entry.value)
    bound = set(updates.values())
    own = {output.name for info in infos for output in info.algorithm.output} - bound
    others = {str(output.name) for output in combined.outputs} - bound
    return find_roles(combined, updates, own or others)


def _inference(
    combined: ir.Model, source: Source, base_dir: str | os.PathLike[str] | None
) -> ir.Model:
    """Return the inference model with the initial values of the combined one."""
    model = load(source, base_dir=base_dir)
    for name, value in model.graph.initializers.items():
        value.const_value = combined.graph.initializers[name].const_value
    return model


def _train_op(
    model: ir.Model, inference: ir.Model, updates: dict[str, str], roles: Roles
) -> TrainOp:
    graph = training_graph(model)
    graph.inference = inference
    values = values_by_name(graph.model.graph)
    for name in dict.fromkeys((*updates, *roles.states)):
        if name in graph.model.graph.initializers:
            role = roles.states.get(name, "slot")
            graph.track(values[name], role, trainable=role == "variable")
    return TrainOp(
        graph=graph,
        loss=graph.value(roles.loss) if roles.loss in values else None,
        updates={name: values[value] for name, value in updates.items()},
        global_step=next((n for n, role in roles.states.items() if role == "global_step"), None),
        fetches={name: values[value] for name, value in roles.fetches.items() if value in values},
        loss_scale=roles.loss_scale,
        loss_scales=roles.loss_scales,
    )
