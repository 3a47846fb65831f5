"""Which type variables a model came with in 16 bits, noted in the nodes of its float32 form.

A note says which node of the model as it was read a node stands for, whatever happens to the form.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from amp_rewrite.graph.dataflow import TypeGraph
from amp_rewrite.graph.flat import ABSENT, Array, FlatGraph
from amp_rewrite.graph.metadata_keys import GIVEN_KEY


class GivenNote(NamedTuple):
    """The node as it was read, ABSENT for a Cast that the form needed, and its low variables."""

    node: int
    variables: frozenset[str]

    def text(self) -> str:
        """Return the note as the metadata of a node have it."""
        return " ".join((str(self.node), *sorted(self.variables)))


def given_notes(flat: FlatGraph) -> dict[int, GivenNote]:
    """Return the nodes of a model that have a note -> the note; none unless it is such a form."""
    return {n: _read(m[GIVEN_KEY]) for n, m in flat.metadata.items() if GIVEN_KEY in m}


def _read(text: str) -> GivenNote:
    node, _, variables = text.partition(" ")
    is_number = node.removeprefix("-").isdecimal()  # a file may have anything under the key
    return GivenNote(int(node) if is_number else ABSENT, frozenset(variables.split()))


def given_mask(type_graph: TypeGraph) -> Array | None:
    """Return a mask of the vertices that nodes note to have been low, or None if none does."""
    noted = given_notes(type_graph.flat)
    if not noted:
        return None
    none = GivenNote(ABSENT, frozenset())
    flags = (
        not noted.get(node, none).variables.isdisjoint(type_graph.kind_of(vertex).variables)
        for vertex, node in enumerate(type_graph.nodes)
    )
    return np.fromiter(flags, np.bool_, len(type_graph.nodes))
