"""The initialization of a training_info: run, and written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from amp_rewrite.errors import TrainingInfoError
from amp_rewrite.runtimes.ort.sessions import Session
from amp_rewrite.training.training_info.combine import model_of

_SMALL = 16  # elements; larger tensors are initialized only if all their elements are equal


def run_initialization(
    model: ir.Model, info: onnx.TrainingInfoProto, base_dir: str | None = None
) -> None:
    """Run an initialization on ONNX Runtime and bind what it gives, in place.

    Raises:
        GraphError: The initialization is not valid.
        TrainingInfoError: A binding names nothing, or a value does not fit its initializer.
        RuntimeMissingError: ONNX Runtime is not installed.
        RunError: It cannot run the initialization.
    """
    if not info.initialization_binding:
        return
    session = Session(model_of(info.initialization, model, base_dir))
    results = dict(zip(session.outputs, session.run({}), strict=True))
    for binding in info.initialization_binding:
        where = f"training_info, initialization_binding of {binding.key!r}"
        value = model.graph.initializers.get(binding.key)
        if value is None:
            raise TrainingInfoError(
                "the bound tensor is not an initializer",
                where=where,
                expected="an initializer of the inference graph or of the algorithm",
            )
        if binding.value not in results:
            raise TrainingInfoError(
                "the initial value is not an output",
                where=where,
                found=repr(binding.value),
                expected=f"an output of the initialization: {', '.join(results)}",
            )
        _assign(value, np.asarray(results[binding.value]), where)


def _assign(value: ir.Value, array: np.ndarray[Any, Any], where: str) -> None:
    old, new = value.const_value, ir.tensor(array, name=value.name)
    if old is not None and (old.dtype, old.shape) != (new.dtype, new.shape):
        raise TrainingInfoError(
            "the initial value does not fit the initializer",
            where=where,
            found=f"{new.dtype} {new.shape}",
            expected=f"{old.dtype} {old.shape}",
        )
    value.const_value = new


def write_initialization(
    info: onnx.TrainingInfoProto, initial: Mapping[str, ir.TensorProtocol]
) -> None:
    """Fill the initialization of a training_info, for tensors that few numbers describe."""
    graph = info.initialization
    graph.name = "initialization"
    for name, tensor in initial.items():
        array = tensor.numpy()
        if array.size > _SMALL and (array != array.flat[0]).any():
            continue
        output = f"{name}/initial"
        proto = ir.to_proto(
            ir.tensor(array if array.size <= _SMALL else array.flat[:1], dtype=tensor.dtype)
        )
        if array.size <= _SMALL:
            graph.node.append(helper.make_node("Constant", [], [output], value=proto))
        else:
            shape = f"{name}/shape"
            graph.initializer.append(
                numpy_helper.from_array(np.array(array.shape, np.int64), shape)
            )
            graph.node.append(helper.make_node("ConstantOfShape", [shape], [output], value=proto))
        element = tensor.dtype.value
        graph.output.append(helper.make_tensor_value_info(output, element, array.shape))
        info.initialization_binding.add(key=name, value=output)
