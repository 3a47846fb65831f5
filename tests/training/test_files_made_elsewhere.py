"""Steps, checkpoints and data that somebody else made or changed: refused in one line, or right."""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.errors import AmpError, CheckpointError, DataError
from amp_rewrite.graph.metadata_keys import CHECKPOINT_KEY
from amp_rewrite.numerics.inputs.batches import read_batch
from amp_rewrite.training.session.checkpoint import read_checkpoint, write_checkpoint
from amp_rewrite.training.session.training_session import TrainingSession

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4] x, float[N,3] t) => (float[N,3] y) <float[4,3] w = {1,2,3,4,5,6,7,8,9,1,2,3}> {
  y = MatMul(x, w) }"""
BATCH = {"x": np.ones((2, 4), np.float32), "t": np.zeros((2, 3), np.float32)}


def is_refused(act: Callable[[], object]) -> bool:
    """Tell whether something is refused in one line, rather than done; nothing else may happen."""
    line = "done"
    try:
        act()
    except AmpError as error:
        line = str(error)
    assert len(line.splitlines()) == 1
    return line != "done"


@cache
def step() -> onnx.ModelProto:
    model = amp.load(onnx.parser.parse_model(MODEL))
    loss = amp.losses.mean_squared_error(model, "y", "t")
    scaled = amp.LossScaleOptimizer(amp.optimizers.Adam(0.1), "dynamic")
    return amp.to_proto(amp.build_step(scaled.minimize(loss)))


def run(proto: onnx.ModelProto) -> None:
    with TrainingSession(proto) as session:
        session.run(BATCH)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / "c.safetensors"
    tensors = {
        "w": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.ones(3, BFLOAT16.numpy),
        "step": np.array(3, np.int64),
    }
    write_checkpoint(path, tensors, dict.fromkeys(tensors, "variable"), {"epoch": 3})
    return path


def rewritten(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change the header of a safetensors file."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])
    return path


NOTES = {
    "deep list": "[" * 200_000 + "]" * 200_000,
    "deep object": '{"version": 1, "progress": ' + '{"a": ' * 100_000 + "1" + "}" * 100_001,
    "huge number": '{"version": 1, "progress": {"epoch": ' + "9" * 5_000 + "}}",
    "list": '{"version": 1, "progress": []}',
    "other version": '{"version": 2, "progress": {}}',
    "nothing": "",
    "not JSON": "\x1b[31m",
}


@pytest.mark.parametrize("note", NOTES.values(), ids=NOTES)
def test_metadata_that_were_tampered_with_are_refused(checkpoint: Path, note: str) -> None:
    rewritten(checkpoint, lambda header: header["__metadata__"].update({CHECKPOINT_KEY: note}))
    with pytest.raises(CheckpointError, match="not a checkpoint of this package") as caught:
        read_checkpoint(checkpoint)
    assert len(str(caught.value)) < 500


HEADERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "overlapping offsets": lambda h: h["step"].update(data_offsets=[0, 8]),
    "gap": lambda h: h["w"].update(data_offsets=[4, 28]),
    "too long": lambda h: h["step"].update(shape=[2], data_offsets=[30, 46]),
    "another length": lambda h: h["w"].update(shape=[2, 4]),
    "impossible length": lambda h: h["w"].update(shape=[2**62, 2**62]),
    "negative length": lambda h: h["w"].update(shape=[-2, -3]),
    "float8": lambda h: h["w"].update(dtype="F8_E4M3", shape=[24]),
    "complex": lambda h: h["w"].update(dtype="C64", shape=[3]),
    "unknown type": lambda h: h["w"].update(dtype="X1"),
}


@pytest.mark.parametrize("change", HEADERS.values(), ids=HEADERS)
def test_headers_that_were_tampered_with_are_refused(checkpoint: Path, change: Any) -> None:
    rewritten(checkpoint, change)
    with pytest.raises(CheckpointError):
        read_checkpoint(checkpoint)


def test_damaged_checkpoints_are_refused_or_readable(checkpoint: Path) -> None:
    data, rng, refused = checkpoint.read_bytes(), random.Random(0), 0
    for _ in range(1500):
        checkpoint.write_bytes(damaged(data, rng))
        refused += is_refused(lambda: read_checkpoint(checkpoint))
    assert refused > 1000


@pytest.mark.parametrize("size", [2**40, 2**63], ids=["a TiB", "more than there is"])
def test_a_huge_header_is_refused_without_memory_for_it(checkpoint: Path, size: int) -> None:
    checkpoint.write_bytes(struct.pack("<Q", size) + b"{}")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_checkpoint(checkpoint)


def test_a_checkpoint_with_swapped_tensors_changes_nothing(tmp_path: Path) -> None:
    with TrainingSession(step()) as session:
        session.run(BATCH)
        path = tmp_path / "c.safetensors"
        session.save(path)
        before = session.state_dict()

        def swap(header: dict[str, Any]) -> None:
            header["w"], header["global_step"] = header["global_step"], header["w"]

        with pytest.raises(CheckpointError, match="another model"):
            session.restore(rewritten(path, swap))
        for name, array in session.state_dict().items():
            np.testing.assert_array_equal(array, before[name])


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return bytes of which a few are others, and perhaps the end is missing."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed[: rng.randrange(len(changed))] if rng.random() < 0.2 else changed)


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_damaged_data_are_refused_or_readable(tmp_path: Path, write: Any) -> None:
    path, rng, refused = tmp_path / "data.npz", random.Random(0), 0
    stream = io.BytesIO()
    write(stream, x=np.arange(40, dtype=np.float32).reshape(4, 10), label=np.arange(4))
    for _ in range(1500):
        path.write_bytes(damaged(stream.getvalue(), rng))
        refused += is_refused(lambda: read_batch(path))
    assert refused > 500


def npz(path: Path, header: str) -> Path:
    """Write an .npz file with an array that has this header, and little data."""
    text = header.encode("latin-1").ljust(-(-(len(header) + 11) // 64) * 64 - 11) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        size = struct.pack("<H", len(text) & 0xFFFF)
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + size + text + bytes(8))
    return path


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<U9999999', 'fortran_order': False, 'shape': (999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1, " * 100 + ")}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
        "(" * 5000,
        "1+" * 9000 + "1",
        "[]",
    ],
)
def test_made_up_headers_of_arrays_are_refused(tmp_path: Path, header: str) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_batch(npz(tmp_path / "data.npz", header))


class Unpickled:
    """An object that says so when it is unpickled."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("an array of objects was unpickled",)


def test_arrays_of_objects_are_never_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.array([Unpickled()], object))
    with pytest.raises(DataError, match="cannot be read"):
        read_batch(tmp_path / "data.npz")
