"""Variables that a provider's kernels tie together, although the schema lets them differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amp_rewrite.dtypes import DType
from amp_rewrite.graph.build_type_graph import Tie
from amp_rewrite.graph.elements import FLOAT32_TYPES
from amp_rewrite.graph.flat import Operator
from amp_rewrite.kernels.kernel_table import KernelTable
from amp_rewrite.rewriting.paint.context import low_types


def kernel_ties(kernels: KernelTable, low: DType) -> Tie:
    """Return the ties of a target.

    CUDA's BatchNormalization, for example, has kernels for T = T1 = T2 only. Variables without a
    kernel of their own in the low type are tied if there is a kernel for all of them together, or
    else together with every other float32 variable of the node.
    """

    def tie(called: Operator, opset: int, known: Mapping[str, str]) -> Sequence[frozenset[str]]:
        float32 = tuple(name for name, type_ in known.items() if type_ in FLOAT32_TYPES)
        if len(float32) < 2:
            return ()

        def has_kernel(variables: tuple[str, ...]) -> bool:
            types = low_types(known, variables, low)
            return kernels.has_kernel(called.domain, called.op_type, opset, types)

        alone = tuple(name for name in float32 if not has_kernel((name,)))
        for group in (alone, float32):
            if len(group) > 1 and alone and has_kernel(group):
                return (frozenset(group),)
        return ()

    return tie
