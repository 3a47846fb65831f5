"""Which values a model computes times a power of two, as its metadata say."""

from __future__ import annotations

import json
from collections.abc import Mapping

from amp_rewrite.graph.metadata_keys import EXPONENTS_KEY

VALUES = "values"
"""Under this key a note has the exponents of values, by name."""


def scaled_values(metadata: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the values that were scaled; none where the metadata say nothing."""
    try:
        return frozenset(json.loads(metadata.get(EXPONENTS_KEY, "{}")).get(VALUES, ()))
    except (ValueError, TypeError, AttributeError):  # a file may have anything under the key
        return frozenset()
