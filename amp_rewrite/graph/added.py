"""The nodes that the pass adds, recognised by their names.

`<value>-CastToFp16|CastToBf16|CastToFp32-<n>-AutoMixedPrecision`, as TensorFlow's rewrite names
them; whoever opens a rewritten model in a viewer can tell them apart as well. A value whose name
goes to the cast behind it (a graph output) is called `<value>-Fp16-<n>-AutoMixedPrecision`.
"""

from __future__ import annotations

import re

import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32, LOW

SUFFIX = "-AutoMixedPrecision"

_LABELS = "|".join(t.label for t in (*LOW.values(), FLOAT32))
_ADDED = re.compile(rf"(?P<value>.*)-(?:CastTo)?(?:{_LABELS})-\d+{SUFFIX}", re.DOTALL)


def is_added(node: ir.Node | None) -> bool:
    """Tell whether the pass added a node."""
    return node is not None and node.name is not None and node.name.endswith(SUFFIX)


def is_added_cast(node: ir.Node | None) -> bool:
    """Tell whether a node is a Cast that the pass added."""
    return node is not None and node.op_type == "Cast" and node.domain == "" and is_added(node)


def origin(name: str) -> str:
    """Return the value that an added value is a cast of; any other name as it is."""
    match = _ADDED.fullmatch(name)
    return match["value"] if match else name
