"""Which part of a training step a node belongs to; the nodes themselves say so."""

from __future__ import annotations

from enum import StrEnum

import onnx_ir as ir

PART_KEY = "amp_rewrite.part"
"""The key in a node's metadata_props; a node of the model that is trained has none."""

SOURCE_KEY = "amp_rewrite.gradient_of"
"""The key under which a node of a gradient names the node that it differentiates."""


class Part(StrEnum):
    """Parts of a training step besides the forward model.

    GRADIENT and RANDOM (Dropout) are painted like the forward model; all others stay float32.
    """

    LOSS = "loss"
    GRADIENT = "gradient"
    ARITHMETIC = "arithmetic"
    CLIP = "clip"
    ALL_REDUCE = "all-reduce"
    LOSS_SCALE = "loss-scale"
    UPDATE = "update"
    RANDOM = "random"

    @property
    def stays_float32(self) -> bool:
        """Whether the nodes of the part are computed in float32, whatever the lists say."""
        return self not in (Part.GRADIENT, Part.RANDOM)


def part_of(node: ir.Node) -> Part | None:
    """Return the part of a training step that a node belongs to, None for the forward model."""
    name = node.metadata_props.get(PART_KEY)
    return None if name is None else Part(name)


def source_of(node: ir.Node) -> str | None:
    """Return the key of the node that a node of a gradient differentiates, or None."""
    return node.metadata_props.get(SOURCE_KEY)


def source_key(node: ir.Node) -> str:
    """Return what nodes of gradients call a node: its name, or that of its first output."""
    return node.name or str(node.outputs[0].name)
