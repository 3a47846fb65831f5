"""Which operators of a model do op lists not know?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx.helper
from google.protobuf.message import DecodeError

from amp_rewrite.graph import schemas
from amp_rewrite.oplists import OpLists
from amp_rewrite.oplists.list_check.report import Finding
from amp_rewrite.oplists.validate import has_float32


@dataclass(frozen=True, slots=True)
class Use:
    """One node of a model: its operator, opset and plain attributes."""

    domain: str
    op: str
    opset: int
    attributes: Mapping[str, object]
    node: str


def check_model(path: str | Path, lists: Mapping[str, OpLists]) -> Iterator[Finding]:
    """Yield a finding for every operator of a model that some list has no word on.

    An operator whose schema has no float32 needs no list, nor does the call of a function that the
    model brings along: its body is checked instead. A custom operator needs an `unlisted` entry.

    Args:
        path: The model; its external data is not read.
        lists: The lists by name.
    """
    try:
        # pyright does not see that onnx loads as a package attribute.
        model: Any = onnx.load(str(path), format="protobuf", load_external_data=False)
    except (OSError, DecodeError, ValueError) as error:
        message = " ".join(str(error).split())
        yield Finding.at(str(path), f"the model cannot be read: {message}; expected an ONNX file")
        return
    if not model.ir_version or not model.HasField("graph"):
        yield Finding.at(str(path), "the model cannot be read: no graph in it; expected ONNX")
        return
    missing: dict[tuple[str, str], list[Use]] = {}
    for use in uses(model):
        if needs_list(use) and not all(_knows(known, use) for known in lists.values()):
            missing.setdefault((use.domain, use.op), []).append(use)
    for found in missing.values():
        yield Finding.at(str(path), _unknown(found, lists))


def uses(model: Any) -> Iterator[Use]:
    """Yield every node of a ModelProto, in subgraphs and function bodies too."""
    functions = {(f.domain, f.name) for f in model.functions}
    bodies = [(model.graph.node, model.opset_import)]
    bodies += [(f.node, f.opset_import) for f in model.functions]
    for nodes, imports in bodies:
        opsets = {_plain(i.domain): i.version for i in imports}
        for node in _walk(nodes):
            if (node.domain, node.op_type) not in functions:
                yield _use(node, opsets)


def needs_list(use: Use) -> bool:
    """Return whether an operator has a float32 port, or no schema that could tell."""
    schema = schemas.find(use.domain, use.op, use.opset)
    return schema is None or has_float32(schema)


def _walk(nodes: Any) -> Iterator[Any]:
    pending = list(reversed(nodes))
    while pending:
        node = pending.pop()
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                pending.extend(reversed(graph.node))


def _use(node: Any, opsets: Mapping[str, int]) -> Use:
    domain = _plain(node.domain)
    opset = opsets.get(domain) or schemas.newest_opset(domain) or 1
    simple = (onnx.AttributeProto.INT, onnx.AttributeProto.FLOAT, onnx.AttributeProto.STRING)
    attributes = {
        a.name: onnx.helper.get_attribute_value(a)
        for a in node.attribute
        if a.type in simple and not a.ref_attr_name
    }
    return Use(domain, node.op_type, opset, attributes, node.name)


def _plain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _knows(known: OpLists, use: Use) -> bool:
    return known.classify(use.domain, use.op, use.opset, use.attributes) is not None


def _unknown(found: list[Use], lists: Mapping[str, OpLists]) -> str:
    use = found[0]
    name = f"{use.domain}::{use.op}" if use.domain else use.op
    silent = [n for n, known in lists.items() if not all(_knows(known, u) for u in found)]
    which = "no list knows it" if len(silent) == len(lists) else f"not on {', '.join(silent)}"
    node = f", first in node {use.node!r}" if use.node else ""
    return (
        f"operator {name} (opset {use.opset}, {len(found)} times{node}): {which}; "
        "put it on a list of a list file, or under `unlisted` to leave it alone"
    )
