"""The profile that ONNX Runtime writes: which nodes ran, where, how long and in which type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amp_rewrite.dtypes import dtype_name
from amp_rewrite.graph import elements
from amp_rewrite.runtimes.session import RanNode

_RAN = "_kernel_time"
"""What the profile appends to a node's name where it tells how long its kernel ran."""


def read_profile(path: str) -> tuple[RanNode, ...]:
    """Return the nodes of a profile, in order; those inside subgraphs are there once a run."""
    events = json.loads(Path(path).read_text("utf-8"))
    ran = (e for e in events if e.get("cat") == "Node" and e["name"].endswith(_RAN))
    return tuple(map(_ran, ran))


def _ran(event: Mapping[str, Any]) -> RanNode:
    name, told = event["name"].removesuffix(_RAN), event["args"]
    took = int(event["dur"])
    return RanNode(name, told["op_name"], told["provider"], took, _type(told), (name,))


def _type(told: Mapping[str, Any]) -> str:
    """Return the element type of the first output of a node, as the profile tells it."""
    for shaped in told.get("output_type_shape", []):
        for spelled in shaped:
            number = elements.element(f"tensor({spelled})")
            return spelled if number is None else dtype_name(number)
    return ""
