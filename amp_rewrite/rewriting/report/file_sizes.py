"""How large the files of a model are before and after a rewrite: one answer for every reader."""

from __future__ import annotations

import os
from pathlib import Path

from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.graph.proto.flat_proto import FlatProto
from amp_rewrite.rewriting.apply.save_rewritten import can_save
from amp_rewrite.rewriting.plan.casts import CastPlan
from amp_rewrite.rewriting.report.gains import Sizes, planned_size


def sizes_of(model: Path, flat: FlatProto, plan: CastPlan, rewritten: Path | None) -> Sizes:
    """Return how large a model is before and after.

    `rewritten` is None if it was not saved, so that its size is computed.

    Raises:
        LoadError: A file cannot be read.
    """
    is_read = flat.files.base_dir is not None  # else it came from memory, or was inlined
    before = os.path.getsize(model) + flat.files.total if is_read else size_of(model)
    if rewritten is None:
        return planned_size(before, plan)
    is_one_file = is_read and can_save(flat) and not flat.files.total
    after = os.path.getsize(rewritten) if is_one_file else size_of(rewritten)
    return Sizes(before, after, exact=True)


def size_of(model: Path) -> int:
    """Return the bytes of a model's file and of the data files that it names.

    Raises:
        LoadError: It cannot be read.
    """
    return os.path.getsize(model) + read_flat(model).files.total
