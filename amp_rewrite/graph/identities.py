"""Which value it is that Identity hands on."""

from __future__ import annotations

from collections.abc import Sequence

from amp_rewrite.graph.flat import ABSENT, FlatGraph


def behind_identities(flat: FlatGraph) -> Sequence[int]:
    """Return, by value, the value that it is the same as: itself, unless an Identity makes it.

    The last entry is ABSENT, for an input that is left out.
    """
    same = [*range(flat.n_values), ABSENT]
    hands_on = [called[:2] == ("", "Identity") for called in flat.operators]
    if any(hands_on):
        for node, operator in enumerate(flat.operator):
            if hands_on[operator]:
                same[flat.outputs_of(node)[0]] = same[flat.inputs_of(node)[0]]
    return same
