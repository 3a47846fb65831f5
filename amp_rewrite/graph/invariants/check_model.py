"""The invariants of a rewrite: what must hold between a model and its rewritten form.

Each is a function that returns the places where it does not hold; `INVARIANTS` names them all.
Two more need to run things and are therefore checked elsewhere: that ONNX Runtime loads the result
(`onnxruntime` is not imported here), and that a second rewrite changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from amp_rewrite.graph.invariants.casts_needed import (
    check_no_cast_chains,
    check_no_duplicate_casts,
    check_no_useless_casts,
)
from amp_rewrite.graph.invariants.constants_faithful import (
    check_initializers_intact,
    check_no_unused_initializers,
)
from amp_rewrite.graph.invariants.structure_valid import (
    KeepIoTypes,
    check_checker,
    check_io_contract,
    check_sorted,
    check_unique_names,
)
from amp_rewrite.graph.invariants.survival import (
    check_functions,
    check_metadata,
    check_nodes,
    check_opaque_parts,
    check_value_infos,
)
from amp_rewrite.graph.invariants.types_agree import check_types
from amp_rewrite.graph.invariants.violation import Violation

__all__ = ["INVARIANTS", "Violation", "verify_invariants"]

Invariant = Callable[[ir.Model, ir.Model], tuple[Violation, ...]]


def _alone(check: Callable[[ir.Model], tuple[Violation, ...]]) -> Invariant:
    def run(_: ir.Model, rewritten: ir.Model) -> tuple[Violation, ...]:
        return check(rewritten)

    run.__doc__ = check.__doc__
    return run


INVARIANTS: Mapping[str, Invariant] = {
    "checker": check_checker,
    "io-contract": check_io_contract,
    "sorted": _alone(check_sorted),
    "unique-names": check_unique_names,
    "no-cast-chains": _alone(check_no_cast_chains),
    "no-duplicate-casts": _alone(check_no_duplicate_casts),
    "no-useless-casts": _alone(check_no_useless_casts),
    "no-unused-initializers": check_no_unused_initializers,
    "initializers-intact": check_initializers_intact,
    "metadata": check_metadata,
    "nodes": check_nodes,
    "value-infos": check_value_infos,
    "functions": check_functions,
    "opaque-parts": check_opaque_parts,
    "types": check_types,
}
"""Every invariant by name: a function of (original, rewritten)."""


def verify_invariants(
    original: ir.Model, rewritten: ir.Model, *, keep_io_types: KeepIoTypes = True
) -> tuple[Violation, ...]:
    """Return every place where a rewritten model breaks an invariant; neither model changes.

    Args:
        original: The model before.
        rewritten: The model after.
        keep_io_types: The rewrite's option: which graph inputs and outputs had to keep float32.
    """
    found: list[Violation] = []
    for name, check in INVARIANTS.items():
        if name == "io-contract":
            found += check_io_contract(original, rewritten, keep_io_types=keep_io_types)
        else:
            found += check(original, rewritten)
    return tuple(found)
