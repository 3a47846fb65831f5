"""What compute_gradients takes besides a loss and variables: one place for all that pass it on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypedDict, TypeVar

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError

P = ParamSpec("P")
R = TypeVar("R")

GATE_NONE, GATE_OP, GATE_GRAPH = 0, 1, 2

_AGGREGATION = (None, 0, 1, 2)


class GradientOptions(TypedDict, total=False):
    """TensorFlow's options of a backward pass; `minimize` and wrappers hand them on unread."""

    gate_gradients: int
    """GATE_NONE, GATE_OP or GATE_GRAPH. Without effect; see `Optimizer`."""
    aggregation_method: int | None
    """A number of TensorFlow's AggregationMethod. Gradients that meet are added by one Sum in the
    widest of their types, whatever it is."""
    colocate_gradients_with_ops: bool
    """Without effect: ONNX assigns no devices."""


_DEFAULTS = (GATE_OP, None, False)


def check_options(options: GradientOptions) -> None:
    """Refuse options of a backward pass that TensorFlow refuses."""
    gate = options.get("gate_gradients", GATE_OP)
    if not isinstance(gate, int) or gate not in (GATE_NONE, GATE_OP, GATE_GRAPH):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise OptimizerValueError(
            "gate_gradients must be one of: Optimizer.GATE_NONE, Optimizer.GATE_OP, "
            f"Optimizer.GATE_GRAPH. Not {gate}"
        )
    method = options.get("aggregation_method")
    if not isinstance(method, int | None) or method not in _AGGREGATION:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptimizerValueError(
            f"Invalid aggregation_method specified {method}",
            expected=" or ".join(map(str, _AGGREGATION)),
        )


def options_by_position(method: Callable[P, R]) -> Callable[P, R]:
    """Let a method that takes `**options: Unpack[GradientOptions]` take them by position too.

    They stand behind `var_list`, as in TensorFlow, and `inspect.signature` shows them there.
    """
    plain = inspect.signature(method)
    own = [p for p in plain.parameters.values() if p.kind is not p.VAR_KEYWORD]
    place = [p.name for p in own].index("var_list") + 1
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    options = [
        inspect.Parameter(name, kind, default=default, annotation=annotation)
        for (name, annotation), default in zip(
            inspect.get_annotations(GradientOptions).items(), _DEFAULTS, strict=True
        )
    ]
    full = plain.replace(parameters=[*own[:place], *options, *own[place:]])

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            bound = full.bind(*args, **kwargs)
        except TypeError as error:
            raise OptimizerTypeError(
                f"{method.__name__} does not take these arguments", found=error
            ) from error
        return method(**bound.arguments)  # pyright: ignore[reportCallIssue] bound above

    vars(call)["__signature__"] = full
    return call
