"""Notes on nodes for viewers such as Netron, which show the metadata of a node."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import NodeProto

from amp_rewrite.graph.proto.flat_proto import FlatProto


def note_nodes(flat: FlatProto, notes: Mapping[int, Mapping[str, str]]) -> None:
    """Add notes to the metadata of nodes; those under the same keys are replaced.

    Args:
        flat: A model; what is saved of it has the notes. Its nodes become other messages, for the
            caller of a rewrite may hold those that were given.
        notes: Node -> key -> note.
    """
    for node, entries in notes.items():
        given, message = flat.nodes[node], NodeProto()
        message.CopyFrom(given)
        del message.metadata_props[:]
        message.metadata_props.extend(e for e in given.metadata_props if e.key not in entries)
        for key, value in entries.items():
            message.metadata_props.add(key=key, value=value)
        flat.nodes[node] = message
