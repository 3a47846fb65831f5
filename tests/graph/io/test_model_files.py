"""`RewriteResult.save` replaces model and data file together, tells of progress, leaves nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, parser

import amp_rewrite as amp
from amp_rewrite.errors import LoadError, SaveError
from amp_rewrite.graph.io.model_files import Inline, Meter, Parts, Place, Written, replace_model
from amp_rewrite.graph.streams import Stream

TEXT = """<ir_version: 8, opset_import: ["": 17]>
    g (float[2,4] x) => (float[2,4] y) <float[4,4] small = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> {
        h = MatMul (x, small)
        y = MatMul (h, big)
    }"""


def external_model(folder: Path, columns: int = 4) -> Path:
    """Write a model whose initializer `big` lies in w.data; return the model's path."""
    proto = parser.parse_model(TEXT)
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = columns
    tensor = proto.graph.initializer.add(name="big", data_type=TensorProto.FLOAT)
    tensor.dims.extend([4, columns])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.data")
    (folder / "w.data").write_bytes(np.ones((4, columns), np.float32).tobytes())
    path = folder / "in.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def rewritten(path: Path) -> amp.RewriteResult:
    return amp.rewrite(path, target="schema")


def files(folder: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in folder.iterdir()}


def test_external_weights_are_converted_on_their_way(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    rewritten(external_model(tmp_path)).save(out / "m.onnx")
    (data,) = out.glob("m.onnx.*.data")
    assert data.read_bytes() == np.ones((4, 4), np.float16).tobytes()
    tensors = {t.name: t for t in onnx.load(out / "m.onnx").graph.initializer}
    assert {t.data_type for t in tensors.values()} == {TensorProto.FLOAT16}


def test_progress_grows_to_all_there_is(tmp_path: Path) -> None:
    found: list[Written] = []
    columns = 1 << 18
    path = external_model(tmp_path, columns)
    rewritten(path).save(tmp_path / "m.onnx", progress=found.append)
    weights = 2 * (4 * columns + 16)
    assert {entry.total for entry in found} == {weights}
    assert found[-1].done == weights
    assert [entry.done for entry in found] == sorted(entry.done for entry in found)
    assert found[0].done < weights


@pytest.mark.parametrize("moment", ["pwrite", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_model_and_nothing_else(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    rewritten(external_model(tmp_path)).save(out / "m.onnx")
    before, calls, real = files(out), [0], getattr(os, moment)
    result = rewritten(external_model(tmp_path, columns=8))

    def second_time(*args: object, **kwargs: object) -> object:
        calls[0] += 1
        if calls[0] > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args, **kwargs)

    monkeypatch.setattr(os, moment, second_time)
    with pytest.raises(SaveError, match="the model cannot be written; found No space left"):
        result.save(out / "m.onnx")
    monkeypatch.undo()
    assert calls[0] > 1
    assert files(out) == before
    result.save(out / "m.onnx")
    assert files(out) != before


def test_an_output_that_is_a_data_file_of_the_model_is_refused(tmp_path: Path) -> None:
    result = rewritten(external_model(tmp_path))
    before = files(tmp_path)
    with pytest.raises(SaveError, match="the output is a data file of the model"):
        result.save(tmp_path / "w.data")
    assert files(tmp_path) == before


def test_data_that_vanish_before_saving_are_reported(tmp_path: Path) -> None:
    result = rewritten(external_model(tmp_path))
    (tmp_path / "w.data").write_bytes(b"short")
    with pytest.raises(LoadError, match="external data of tensor 'big' is too short; found 5"):
        result.save(tmp_path / "m.onnx")
    (tmp_path / "w.data").unlink()
    with pytest.raises(LoadError, match="'big' cannot be read; found No such file"):
        result.save(tmp_path / "m.onnx")
    assert set(files(tmp_path)) == {"in.onnx"}


def test_a_data_file_that_is_still_read_stays(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    amp.save(amp.load(external_model(tmp_path)), path)
    (old,) = tmp_path.glob("m.onnx.*.data")
    result = rewritten(path)
    result.save(path)
    assert len(set(tmp_path.glob("m.onnx.*.data")) - {old}) == 1
    assert old.exists()
    result.save(tmp_path / "again.onnx")
    (new,) = tmp_path.glob("again.onnx.*.data")
    assert new.read_bytes() == np.ones((4, 4), np.float16).tobytes()


def test_parts_are_one_message() -> None:
    data = np.arange(4, dtype=np.float32)
    message = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    header = onnx.ModelProto(ir_version=8).SerializeToString()
    body = onnx.GraphProto(name="g").SerializeToString()
    inline = Inline(message.SerializeToString(), Stream(4, data.dtype, data))
    parts = Parts(header, body, [inline])
    blocks = [block.tobytes() for stream in parts.streams() for block in stream.blocks()]
    model = onnx.ModelProto.FromString(b"".join(blocks))
    message.raw_data = data.tobytes()
    assert inline.size == len(message.SerializeToString())
    assert model.graph == onnx.GraphProto(name="g", initializer=[message])
    assert model.ir_version == 8


def test_small_initializers_share_a_stream() -> None:
    parts = Parts(b"", b"", [Inline(b"m", Stream.of_bytes(bytes([n] * 9))) for n in range(99)])
    streams = list(parts.streams())
    assert len(streams) == 1
    assert b"".join(bytes(s.array()) for s in streams).count(bytes([98] * 9)) == 1


def test_a_model_that_protobuf_cannot_hold_is_not_written(tmp_path: Path) -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 1 << 31

    def parts(_: object) -> Parts:
        return Parts(b"", Huge(), [])

    with pytest.raises(ValueError, match="too many for a protobuf message"):
        replace_model(str(tmp_path / "m.onnx"), [], parts, Meter(0, None), set())
    assert files(tmp_path) == {}


def test_places_are_aligned_and_named_by_content(tmp_path: Path) -> None:
    seen: list[Place] = []

    def parts(places: object) -> Parts:
        seen.extend(places)  # pyright: ignore[reportArgumentType]
        return Parts(b"", b"", [])

    streams = [Stream.of_bytes(content) for content in (b"abc", b"de")]
    replace_model(str(tmp_path / "m.onnx"), streams, parts, Meter(5, None), set())
    assert [place[1:] for place in seen] == [(0, 3), (64, 2)]
    assert (tmp_path / seen[0].location).read_bytes() == b"abc" + bytes(61) + b"de"


def test_a_meter_never_counts_more_than_there_is() -> None:
    found: list[Written] = []
    meter = Meter(5, found.append)
    for _ in range(3):
        meter.add(memoryview(b"abc"))
    assert found == [(3, 5), (5, 5), (5, 5)]
