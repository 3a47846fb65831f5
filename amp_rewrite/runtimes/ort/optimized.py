"""The graph that ONNX Runtime made of a model: which values the nodes that it runs give."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

from amp_rewrite.graph.proto.messages import graphs_of

FILE, WEIGHTS = "optimized.onnx", "optimized.bin"

_EXTERNAL = "session.optimized_model_external_initializers_file_name"
_LEAST = "session.optimized_model_external_initializers_min_size_in_bytes"

_REMADE = re.compile(r"_(?:nchwc|nhwc)(?:_token_\d+)?$")
"""What ends the name of a node that was made for another layout, behind the name of the value that
the model has in its place."""


def keep_optimized(options: Any, folder: str) -> None:
    """Let a session with these options write the graph that it runs into a folder."""
    options.optimized_model_filepath = str(Path(folder, FILE))
    options.add_session_config_entry(_EXTERNAL, WEIGHTS)
    options.add_session_config_entry(_LEAST, "1024")


def keep_nothing(options: Any) -> None:
    """Take that back: a provider whose nodes are compiled cannot write them."""
    options.optimized_model_filepath = ""


def results_of_nodes(folder: str) -> dict[str, tuple[str, ...]]:
    """Return what the nodes of the graph that was kept give, by name; nothing if none was.

    A node of another layout gives values of its own; it is told of with the value of the model
    that it stands for.
    """
    path = Path(folder, FILE)
    if not path.exists():
        return {}
    model = onnx.load(path, load_external_data=False)
    return {node.name: _results(node) for node in _nodes(model.graph)}


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for inner in graphs_of(node):
            yield from _nodes(inner)


def _results(node: onnx.NodeProto) -> tuple[str, ...]:
    stands_for = _REMADE.sub("", node.name)
    more = () if stands_for == node.name else (stands_for,)
    return (*filter(None, node.output), *more)
