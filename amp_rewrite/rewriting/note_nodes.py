"""Notes on nodes for viewers such as Netron, which show the metadata of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from amp_rewrite.graph.proto.flat_proto import FlatProto

if TYPE_CHECKING:
    import onnx

    from amp_rewrite.graph.flat_model import FlatModel


def note_nodes(flat: FlatProto | FlatModel, notes: Mapping[int, Mapping[str, str]]) -> None:
    """Add notes to the metadata of nodes; those under the same keys are replaced.

    Args:
        flat: A model that nobody else holds; what is saved of it has the notes.
        notes: Node -> key -> note.
    """
    for node, entries in notes.items():
        if isinstance(flat, FlatProto):
            _replace(flat.nodes[node], entries)
        else:
            flat.nodes[node].metadata_props.update(entries)


def _replace(message: onnx.NodeProto, entries: Mapping[str, str]) -> None:
    """Replace entries of the metadata of a message, which is a list of keys and values."""
    kept = [entry for entry in message.metadata_props if entry.key not in entries]
    del message.metadata_props[:]
    message.metadata_props.extend(kept)
    for key, value in entries.items():
        message.metadata_props.add(key=key, value=value)
