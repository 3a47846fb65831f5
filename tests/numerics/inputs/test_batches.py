"""Archives of arrays that are not what they say."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from amp_rewrite.errors import DataError
from amp_rewrite.numerics.inputs.batches import read_batch


def test_an_archive_that_unpacks_to_gigabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w") as member,
    ):
        np.lib.format.write_array_header_1_0(
            member, {"descr": "<f4", "fortran_order": False, "shape": (300 << 18,)}
        )
        for _ in range(300):
            member.write(bytes(1 << 20))
    assert path.stat().st_size < 4 << 20
    with pytest.raises(DataError, match=r"x\.npy: .* bytes that become 314,572,9"):
        read_batch(path)


def test_an_archive_that_packs_zeros_is_read(tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    np.savez_compressed(path, x=np.zeros(1 << 18, np.float32))
    assert not read_batch(path)["x"].any()
