"""Drop-in forms of the functions of onnxconverter-common and `onnxruntime.transformers.float16`."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.errors import OptionError, warn
from amp_rewrite.graph.elements import element
from amp_rewrite.graph.infer import infer
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.rewriting.api import rewrite

if TYPE_CHECKING:
    import onnx

    from amp_rewrite.graph.flat import FlatGraph

_MIN_POSITIVE = (1e-7, 5.96e-8)
_MAX_FINITE = (1e4, 65504.0)
"""The defaults of both functions."""


def convert_float_to_float16(
    model: onnx.ModelProto | str | os.PathLike[str],
    min_positive_val: float = _MIN_POSITIVE[0],
    max_finite_val: float = _MAX_FINITE[0],
    keep_io_types: bool | list[str] = False,
    disable_shape_infer: bool = False,
    op_block_list: Collection[str] | None = None,
    node_block_list: Iterable[str] | None = None,
    check_fp16_ready: bool = False,
    force_fp16_initializers: bool = False,
    force_fp16_inputs: Mapping[str, list[int]] | None = None,
    use_bfloat16_as_blocked_nodes_dtype: bool = False,
    **changes: Any,
) -> onnx.ModelProto:
    """Return a model in mixed precision, with the arguments of other converters.

    Op lists decide which operators become float16, so that no list of blocked operators is needed.
    A constant that does not fit keeps its operator in float32; others clamp the constant.

    Args:
        model: The model or its file; not modified.
        min_positive_val: Without effect: constants are not clamped. A number is warned of.
        max_finite_val: The same.
        keep_io_types: Whether inputs and outputs stay float32, or which of them.
        disable_shape_infer: Without effect: types come from the operators' schemas.
        op_block_list: Further operators that stay as they are.
        node_block_list: Nodes that stay as they are.
        check_fp16_ready: Refuse a model that has float16 values already.
        force_fp16_initializers: Without effect: constants of float32 operators stay float32, tables
            aside. It is warned of.
        force_fp16_inputs: Refused: schemas and kernels say the types of inputs.
        use_bfloat16_as_blocked_nodes_dtype: Refused: a rewrite has one 16-bit type.
        **changes: Options of `rewrite` by name, such as `target="webgpu"`.

    Raises:
        OptionError: An argument is not supported, or names nothing in the model.
        AmpError: The model is wrong.
    """
    del disable_shape_infer
    bfloat16 = use_bfloat16_as_blocked_nodes_dtype
    _refuse(force_fp16_inputs=force_fp16_inputs, use_bfloat16_as_blocked_nodes_dtype=bfloat16)
    _warn_of_cutting(min_positive_val, max_finite_val)
    if force_fp16_initializers:
        warn("force_fp16_initializers: constants of float32 operators stay float32, tables aside")
    flat = read_flat(model)
    if check_fp16_ready:
        _check_no_float16(flat)
    options: dict[str, Any] = {
        "keep_io_types": keep_io_types,
        "preserve": [*(node_block_list or ()), *_nodes_of(flat, op_block_list or ())],
        **changes,
    }
    from amp_rewrite.graph.io.save import to_proto

    return to_proto(rewrite(model, **options).model)


def _refuse(**arguments: object) -> None:
    """Refuse arguments that are not supported."""
    for name, value in arguments.items():
        if value:
            raise OptionError(
                f"{name} cannot be followed",
                found=repr(value),
                expected="the default",
                remedy="op lists say what becomes 16-bit: rewrite(lists=...)",
            )


def _warn_of_cutting(least: float, largest: float) -> None:
    if least not in _MIN_POSITIVE or largest not in _MAX_FINITE:
        warn(
            "min_positive_val and max_finite_val: nothing is cut off; a constant that does not fit "
            "keeps its operator float32"
        )


def _check_no_float16(flat: FlatGraph) -> None:
    """Refuse a model with float16 values."""
    for value, type_ in enumerate(infer(flat)):
        if element(type_) == FLOAT16.number:
            raise OptionError(
                "the model has float16 values already",
                where=flat.value_names[value],
                remedy="pass check_fp16_ready=False to convert the rest",
            )


def _nodes_of(flat: FlatGraph, operators: Collection[str]) -> list[str]:
    """Return the names of the nodes that call some operators."""
    return [flat.node_names[n] for n in range(flat.n_nodes) if flat.called(n).op_type in operators]
