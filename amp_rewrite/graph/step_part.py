"""Which part of a training step a node belongs to; the nodes themselves say so."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from amp_rewrite.errors import GraphError
from amp_rewrite.graph.metadata_keys import PART_KEY, SOURCE_KEY

if TYPE_CHECKING:
    import onnx_ir as ir


class Part(StrEnum):
    """Parts of a training step besides the forward model.

    GRADIENT and RANDOM (Dropout) are painted like the forward model; all others stay float32. SUM
    adds up the gradients of a loop's turns.
    """

    LOSS = "loss"
    GRADIENT = "gradient"
    SUM = "sum"
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


def part_in(metadata: Mapping[str, str]) -> Part | None:
    """Return the part of a step that a node's metadata name, None for the forward model."""
    name = metadata.get(PART_KEY)
    return None if name is None else Part(name)


def source_in(metadata: Mapping[str, str]) -> str | None:
    """Return the key of the differentiated node that a node's metadata name, or None."""
    return metadata.get(SOURCE_KEY)


def source_key(node: ir.Node) -> str:
    """Return what nodes of gradients call a node: its name, or that of its first output."""
    return node.name or str(node.outputs[0].name)


def check_marks(metadata: Mapping[str, str], where: str) -> None:
    """Refuse a node whose metadata say what no step says."""
    part = metadata.get(PART_KEY, Part.LOSS)
    if part not in _PARTS:
        raise GraphError(
            f"the metadata {PART_KEY!r} name an unknown part",
            where=where,
            found=repr(part),
            expected=" or ".join(Part),
            remedy="build the step again, or with this version",
        )


_PARTS = frozenset(Part)
