"""The exponents of a scaled model, noted in its metadata: the original can be scaled by them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.infer import infer
from amp_rewrite.graph.scaled_values import VALUES
from amp_rewrite.rewriting.scaling.borders import borders
from amp_rewrite.rewriting.scaling.scaled_model import scaled_flat
from amp_rewrite.values.scales.call import System
from amp_rewrite.values.scales.equations import scale_system
from amp_rewrite.values.scales.solve import is_solution

_READS, _BORDERS = "reads", "borders"


def exponents_noted(system: System, exponents: Mapping[int, int]) -> str:
    """Return exponents as the metadata of a model have them, by the names of values and nodes."""
    flat = system.flat
    values: dict[str, int] = {}
    constants: dict[str, dict[str, int]] = {}
    for element, exponent in exponents.items():
        if element < flat.n_values:
            values[flat.value_names[element]] = exponent
        elif element in system.constants:
            _note(system, constants, element, exponent)
    noted: dict[str, Any] = {VALUES: values, _READS: constants}
    if system.links:
        others: dict[str, dict[str, int]] = {}
        for _, read, _ in borders(system, exponents):
            _note(system, others, read, exponents.get(read, 0))
        noted[_BORDERS] = others
    return json.dumps(noted, separators=(",", ":"))


def _note(system: System, reads: dict[str, dict[str, int]], element: int, exponent: int) -> None:
    flat, slot = system.flat, element - system.flat.n_values
    node = flat.node_names[flat.reader(slot)]
    reads.setdefault(node, {})[str(flat.index(slot))] = exponent


def scaled_as_noted(flat: FlatGraph, note: str) -> FlatGraph | None:
    """Return a model scaled as the metadata of one that was made of it say.

    None if these are not such a note, or say something else than powers of two with which this
    model would compute the same.
    """
    try:
        noted: Any = json.loads(note)
        values = {str(name): int(k) for name, k in noted[VALUES].items()}
        reads = _numbers(noted[_READS])
        others = _numbers(noted.get(_BORDERS, {}))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    system = scale_system(flat, infer(flat), borders=_BORDERS in noted)
    exponents = {v: values[name] for v, name in enumerate(flat.value_names) if name in values}
    is_whole = len(exponents) == len(values)
    exponents |= {read: exponents[v] for v, read in system.links if v in exponents}
    for noted_reads in (reads, others):
        found = _elements(flat, noted_reads)
        is_whole = is_whole and len(found) == sum(len(r) for r in noted_reads.values())
        exponents |= found
    return scaled_flat(system, exponents) if is_whole and is_solution(system, exponents) else None


def _numbers(noted: Any) -> dict[str, dict[int, int]]:
    return {str(n): {int(i): int(k) for i, k in r.items()} for n, r in noted.items()}


def _elements(flat: FlatGraph, reads: Mapping[str, Mapping[int, int]]) -> dict[int, int]:
    """Return the elements that nodes read -> their exponents."""
    elements: dict[int, int] = {}
    for node, name in enumerate(flat.node_names):
        for index, exponent in reads.get(name, {}).items():
            slot = flat.input_start[node] + index
            if slot < flat.input_start[node + 1]:
                elements[flat.n_values + slot] = exponent
    return elements
