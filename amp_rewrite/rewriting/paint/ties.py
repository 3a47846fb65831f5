"""Variables that are tied together, although the schema lets them differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.build_type_graph import Tie
from amp_rewrite.graph.elements import FLOAT32_TYPES
from amp_rewrite.graph.flat import Operator
from amp_rewrite.kernels.kernel_table import KernelTable
from amp_rewrite.rewriting.paint.context import low_types

_NORMALIZED = frozenset({"T", "V"})
"""The variables of a normalization's input, and of its scale and result."""

_EXPERTS = frozenset({"T", "T2"})
"""The variables of the data of QMoE, and of the scales of its weights."""


def variable_ties(kernels: KernelTable | None, low: DType) -> Tie:
    """Return the ties of a target; None for the kernels of target "schema".

    The result of a normalization has the type of its input, and the scales of quantised experts
    that of the data. Variables without a kernel of their own in the low type are tied if there is a
    kernel for all of them together, or else together with every other float32 variable.
    """

    def tie(called: Operator, opset: int, type_of: Mapping[str, str]) -> Sequence[frozenset[str]]:
        float32 = {name for name, type_ in type_of.items() if type_ in FLOAT32_TYPES}
        # operators: those whose schema has a variable for the input and one for the result.
        if called.op_type in ("RMSNormalization", "SimplifiedLayerNormalization"):
            return (_NORMALIZED,) if float32 >= _NORMALIZED else ()
        if called[:2] == ("com.microsoft", "QMoE"):
            return (_EXPERTS,) if float32 >= _EXPERTS else ()
        if len(float32) < 2 or kernels is None:
            return ()
        return _kernel_ties(kernels, called, opset, type_of, low)

    return tie


def _kernel_ties(
    kernels: KernelTable, called: Operator, opset: int, type_of: Mapping[str, str], low: DType
) -> Sequence[frozenset[str]]:
    """Return the variables of a call that have kernels in the low type only together."""
    float32 = tuple(name for name, type_ in type_of.items() if type_ in FLOAT32_TYPES)

    def has_kernel(variables: tuple[str, ...]) -> bool:
        types = low_types(type_of, variables, low)
        return kernels.has_kernel(called.domain, called.op_type, opset, types)

    alone = tuple(name for name in float32 if not has_kernel((name,)))
    for group in (alone, float32):
        if len(group) > 1 and alone and has_kernel(group):
            return (frozenset(group),)
    return ()
