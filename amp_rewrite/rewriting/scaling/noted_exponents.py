"""The exponents of a scaled model, noted in its metadata, so that the original can be scaled alike.

Who compares a rewritten model with the original value by value compares it with the scaled
original, which computes the same in float32.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from amp_rewrite.graph.infer import infer
from amp_rewrite.graph.proto.flat_proto import FlatProto
from amp_rewrite.rewriting.scaling.scaled_model import scaled_flat
from amp_rewrite.values.scales.call import System
from amp_rewrite.values.scales.equations import scale_system
from amp_rewrite.values.scales.solve import is_solution

_VALUES, _READS = "values", "reads"


def exponents_noted(system: System, exponents: Mapping[int, int]) -> str:
    """Return exponents as the metadata of a model have them, by the names of values and nodes."""
    flat = system.flat
    values: dict[str, int] = {}
    reads: dict[str, dict[str, int]] = {}
    for element, exponent in exponents.items():
        if element < flat.n_values:
            values[flat.value_names[element]] = exponent
        else:
            slot = element - flat.n_values
            node = flat.node_names[flat.reader(slot)]
            reads.setdefault(node, {})[str(flat.index(slot))] = exponent
    return json.dumps({_VALUES: values, _READS: reads}, separators=(",", ":"))


def scaled_as_noted(flat: FlatProto, note: str) -> FlatProto | None:
    """Return a model scaled as the metadata of one that was made of it say.

    None if these are not such a note, or say something else than powers of two with which this
    model would compute the same.
    """
    try:
        noted: Any = json.loads(note)
        values = {str(name): int(k) for name, k in noted[_VALUES].items()}
        reads = {str(n): {int(i): int(k) for i, k in r.items()} for n, r in noted[_READS].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    system = scale_system(flat, infer(flat))
    exponents = {v: values[name] for v, name in enumerate(flat.value_names) if name in values}
    for node, name in enumerate(flat.node_names):
        for index, exponent in reads.get(name, {}).items():
            slot = flat.input_start[node] + index
            if slot < flat.input_start[node + 1]:
                exponents[flat.n_values + slot] = exponent
    is_whole = len(exponents) == len(values) + sum(len(r) for r in reads.values())
    return scaled_flat(system, exponents) if is_whole and is_solution(system, exponents) else None
