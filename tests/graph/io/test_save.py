"""Saving writes all or nothing, streams, and never mixes an old model with new data."""

import errno
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, parser

from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.errors import LoadError, SaveError
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.model_files import refuse_same
from amp_rewrite.graph.io.save import save
from amp_rewrite.graph.tensors import ConvertedTensor
from amp_rewrite.rewriting.api import rewrite

TEXT = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N, 4] x) => (float[N, 4] y) <float[4] small = {1, 2, 3, 4}> {
        h = Add (x, big)
        y = Mul (h, small)
    }"""


def external_model(folder: Path, value: float = 1.0, size: int = 4, name: str = "w.data") -> Path:
    """Write a model whose initializer `big` lies in a file; return the model's path."""
    proto = parser.parse_model(TEXT)
    tensor = proto.graph.initializer.add(name="big", data_type=TensorProto.FLOAT, dims=[size])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=name)
    (folder / name).write_bytes(np.full(size, value, np.float32).tobytes())
    path = folder / "in.onnx"
    onnx.save(proto, path)
    return path


def inline_model() -> ir.Model:
    proto = parser.parse_model(
        TEXT.replace("<float[4] small", "<float[4] big = {5,6,7,8}, float[4] small")
    )
    return load(proto)


def files(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def big_of(path: Path) -> np.ndarray:
    return load(path).graph.initializers["big"].const_value.numpy()


def test_external_tensors_go_to_one_data_file_named_by_its_content(tmp_path):
    source = external_model(tmp_path)
    (tmp_path / "out").mkdir()
    out = tmp_path / "out" / "m.onnx"
    save(load(source), out)
    (data,) = (tmp_path / "out").glob("m.onnx.*.data")
    assert files(tmp_path / "out") == ["m.onnx", data.name]
    assert data.read_bytes() == np.ones(4, np.float32).tobytes()
    proto = onnx.load(out, load_external_data=False)
    placed = {tensor.name: tensor.data_location for tensor in proto.graph.initializer}
    assert placed == {"small": TensorProto.DEFAULT, "big": TensorProto.EXTERNAL}
    onnx.checker.check_model(str(out))
    np.testing.assert_array_equal(big_of(out), np.ones(4, np.float32))


def test_a_protobuf_model_can_be_saved_as_well(tmp_path):
    proto = parser.parse_model(TEXT.replace("big", "small"))
    info = proto.training_info.add()
    info.algorithm.name = "algorithm"
    save(proto, tmp_path / "out.onnx")
    found = onnx.load(tmp_path / "out.onnx")
    assert found.training_info[0].algorithm.name == "algorithm"
    assert [node.op_type for node in found.graph.node] == ["Add", "Mul"]


def test_saving_twice_gives_the_same_bytes(tmp_path):
    source = external_model(tmp_path)
    contents = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        save(load(source), folder / "m.onnx")
        contents.append({file: (folder / file).read_bytes() for file in files(folder)})
    assert contents[0] == contents[1]


def test_a_replaced_model_takes_its_old_data_file_with_it(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "m.onnx.0123456789ab.data.txt").write_text("not ours")
    for value in (1.0, 2.0, 2.0):
        save(load(external_model(tmp_path, value)), out / "m.onnx")
        np.testing.assert_array_equal(big_of(out / "m.onnx"), np.full(4, value, np.float32))
        assert len(files(out)) == 3


def test_a_model_saved_over_itself_can_still_be_read(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    save(load(external_model(tmp_path)), out / "m.onnx")
    model = load(out / "m.onnx")
    value = model.graph.initializers["big"]
    assert value.const_value is not None
    value.const_value = ConvertedTensor(value.const_value, FLOAT16)
    save(model, out / "m.onnx")
    assert big_of(out / "m.onnx").dtype == np.float16
    np.testing.assert_array_equal(
        model.graph.initializers["big"].const_value.numpy(), np.ones(4, np.float16)
    )


def test_large_tensors_start_on_pages_and_small_ones_on_cache_lines(tmp_path):
    model = load(external_model(tmp_path, size=3))
    for name, size in (("b", 5), ("c", (1 << 20) // 4), ("d", 1)):
        (tmp_path / name).write_bytes(np.full(size, 7, np.float32).tobytes())
        tensor = ir.ExternalTensor(
            name,
            0,
            size * 4,
            ir.DataType.FLOAT,
            shape=ir.Shape([size]),
            name=name,
            base_dir=tmp_path,
        )
        model.graph.initializers.add(ir.Value(name=name, const_value=tensor))
    save(model, tmp_path / "m.onnx")
    saved = load(tmp_path / "m.onnx")
    offsets = {
        name: getattr(v.const_value, "offset", None)
        for name, v in saved.graph.initializers.items()
        if name != "small"
    }
    assert offsets == {"big": 0, "b": 64, "c": 4096, "d": 4096 + (1 << 20)}
    for name in ("b", "c", "d"):
        assert (saved.graph.initializers[name].const_value.numpy() == 7).all()


def test_a_tensor_used_twice_is_stored_once(tmp_path):
    model = load(external_model(tmp_path))
    shared = model.graph.initializers["big"].const_value
    model.graph.initializers["small"].const_value = shared
    model.graph.initializers["small"].name = "big2"
    save(model, tmp_path / "m.onnx")
    (data,) = tmp_path.glob("m.onnx.*.data")
    assert data.stat().st_size == 16
    assert set(load(tmp_path / "m.onnx").graph.initializers) == {"big", "big2"}


@pytest.mark.parametrize("sizes", [(4, 12), (16, 4)], ids=["offset or length", "neither"])
def test_tensors_at_other_parts_of_a_file_are_not_taken_for_one(sizes, tmp_path):
    keys = ({"offset": 48}, {"length": 48}) if sizes == (4, 12) else ({}, {})
    numbers = np.arange(16, dtype=np.float32)
    (tmp_path / "w.data").write_bytes(numbers.tobytes())
    proto = parser.parse_model(TEXT)
    for name, size, more in zip("ab", sizes, keys, strict=True):
        tensor = proto.graph.initializer.add(name=name, data_type=TensorProto.FLOAT, dims=[size])
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": "w.data", **more}.items():
            tensor.external_data.add(key=key, value=str(value))
    proto.graph.initializer.add(name="big", data_type=1, dims=[4], float_data=[1, 2, 3, 4])
    onnx.save(proto, tmp_path / "in.onnx")
    rewrite(tmp_path / "in.onnx").save(tmp_path / "m.onnx")
    weights = load(tmp_path / "m.onnx").graph.initializers
    first = numbers[12:] if sizes == (4, 12) else numbers
    np.testing.assert_array_equal(weights["a"].const_value.numpy(), first)
    np.testing.assert_array_equal(weights["b"].const_value.numpy(), numbers[: sizes[1]])


def test_an_external_tensor_in_an_attribute_is_moved_too(tmp_path):
    proto = onnx.load(external_model(tmp_path), load_external_data=False)
    node = proto.graph.node.add(op_type="Constant", output=["k"])
    node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(
        proto.graph.initializer[1]
    )
    save(load(proto, base_dir=tmp_path), tmp_path / "m.onnx")
    (data,) = tmp_path.glob("m.onnx.*.data")
    saved = load(tmp_path / "m.onnx")
    tensor = saved.graph[2].attributes["value"].as_tensor()
    assert isinstance(tensor, ir.ExternalTensor)
    assert tensor.location == data.name
    np.testing.assert_array_equal(tensor.numpy(), np.ones(4, np.float32))


def test_permissions_of_a_replaced_file_stay(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"old")
    path.chmod(0o640)
    save(inline_model(), path)
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("link", ["same", "symlink", "hard link", "dotted"])
def test_an_output_that_is_the_input_is_refused(link, tmp_path):
    source = external_model(tmp_path)
    output = tmp_path / "other.onnx"
    match link:
        case "same":
            output = source
        case "symlink":
            output.symlink_to(source)
        case "hard link":
            output.hardlink_to(source)
        case _:
            output = tmp_path / "x" / ".." / "in.onnx"
    with pytest.raises(SaveError, match=r"the output is the input; found .*choose another"):
        refuse_same(str(output), [str(source)], "the output is the input")


def test_an_output_that_is_a_data_file_of_the_model_is_refused(tmp_path):
    model = load(external_model(tmp_path))
    with pytest.raises(SaveError, match="the output is a data file of the model"):
        save(model, tmp_path / "w.data")
    assert (tmp_path / "w.data").stat().st_size == 16


def test_outputs_that_cannot_be_files_are_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, expected in (
        ("folder", "the output is a folder"),
        ("pipe", "is not a regular file"),
        ("pipe/m.onnx", "the output cannot be written; found Not a directory"),
        ("n" * 300, "File name too long"),
        ("a\0b", "null"),
    ):
        with pytest.raises(SaveError, match=expected) as caught:
            save(inline_model(), tmp_path / name)
        assert "\n" not in str(caught.value)
    assert files(tmp_path) == ["folder", "pipe"]


def test_a_missing_folder_is_made(tmp_path):
    save(inline_model(), tmp_path / "new" / "folder" / "m.onnx")
    assert files(tmp_path / "new" / "folder") == ["m.onnx"]


@pytest.mark.parametrize("path", [3.5, 3, None, b"m.onnx"])
def test_an_output_has_a_path(path):
    with pytest.raises(SaveError, match="must be a string or a path object; found an object"):
        save(inline_model(), path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_write_protected_target_is_refused(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"old")
    path.chmod(0o400)
    with pytest.raises(SaveError, match="write-protected"):
        save(inline_model(), path)
    path.chmod(0o600)
    tmp_path.chmod(0o500)
    with pytest.raises(SaveError, match="Permission denied"):
        save(inline_model(), path)
    tmp_path.chmod(0o700)
    assert files(tmp_path) == ["m.onnx"]


@pytest.mark.parametrize("moment", ["write", "fsync", "replace"])
@pytest.mark.parametrize(
    "failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
def test_a_failure_at_any_moment_leaves_the_old_model_and_nothing_else(
    moment, failure, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    out.mkdir()
    save(load(external_model(tmp_path, 1.0)), out / "m.onnx")
    before = {name: (out / name).read_bytes() for name in files(out)}
    model = load(external_model(tmp_path, 2.0))

    def fail(*_args, **_kwargs):
        raise failure

    if moment == "write":
        monkeypatch.setattr(os, "pwrite", fail)
    else:
        calls, real = [], getattr(os, moment)

        def second_time(*args, **kwargs):
            calls.append(args)
            return fail() if len(calls) > 1 else real(*args, **kwargs)

        monkeypatch.setattr(os, moment, second_time)
    expected = SaveError if isinstance(failure, OSError) else KeyboardInterrupt
    with pytest.raises(expected, match="No space left" if expected is SaveError else None):
        save(model, out / "m.onnx")
    monkeypatch.undo()
    assert {name: (out / name).read_bytes() for name in files(out)} == before


def test_data_that_vanish_before_saving_are_reported(tmp_path):
    model = load(external_model(tmp_path))
    (tmp_path / "w.data").write_bytes(b"short")
    with pytest.raises(LoadError, match="external data of tensor 'big' is too short; found 11"):
        save(model, tmp_path / "m.onnx")
    (tmp_path / "w.data").unlink()
    with pytest.raises(LoadError, match="'big' cannot be read; found No such file"):
        save(model, tmp_path / "m.onnx")
    assert files(tmp_path) == ["in.onnx"]


KILLED = """
    import itertools, sys
    from amp_rewrite.graph.io.load import load
    from amp_rewrite.graph.io.save import save
    models = [load(path) for path in sys.argv[2:]]
    print("ready", flush=True)
    for model in itertools.cycle(models):
        save(model, sys.argv[1])
"""


def check_kills(tmp_path: Path, rounds: int) -> None:
    """Kill a process that overwrites a model without pause; look at what is left each time."""
    size, sources = 1 << 18, []
    for index in range(2):
        folder = tmp_path / str(index)
        folder.mkdir()
        sources.append(external_model(folder, float(index), size))
    out = tmp_path / "out" / "m.onnx"
    out.parent.mkdir()
    save(load(sources[0]), out)
    rng, seen = random.Random(0), set()
    for _ in range(rounds):
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", textwrap.dedent(KILLED), out, *sources],
            stdout=subprocess.PIPE,
        )
        with process:
            assert process.stdout.readline() == b"ready\n"
            time.sleep(rng.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
        values = np.unique(big_of(out))
        assert values.size == 1
        assert values[0] in {0.0, 1.0}
        seen.add(float(values[0]))
        assert big_of(out).size == size
    save(load(sources[0]), out)
    visible = [name for name in files(out.parent) if not name.startswith(".")]
    assert len(visible) == 2
    assert rounds < 20 or seen == {0.0, 1.0}


def test_a_kill_leaves_the_old_model_or_the_new_one(tmp_path):
    check_kills(tmp_path, 2)


RACING = """
    import sys
    from amp_rewrite.graph.io.load import load
    from amp_rewrite.graph.io.save import save
    model = load(sys.argv[2])
    for line in sys.stdin:
        save(model, sys.argv[1])
        print("saved", flush=True)
"""


def check_races(tmp_path: Path, rounds: int) -> None:
    """Let two processes save different models under one name at once; look at what is left."""
    out = tmp_path / "out" / "m.onnx"
    out.parent.mkdir()
    racers = []
    for index in range(2):
        folder = tmp_path / str(index)
        folder.mkdir()
        command = [sys.executable, "-P", "-c", textwrap.dedent(RACING), out]
        source = external_model(folder, float(index))
        racers.append(
            subprocess.Popen(
                [*command, source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
            )
        )
    for _ in range(rounds):
        for racer in racers:
            racer.stdin.write(b"go\n")
        assert [racer.stdout.readline() for racer in racers] == [b"saved\n"] * 2
        values = np.unique(big_of(out))
        assert values.size == 1
        assert len(files(out.parent)) == 2
    for racer in racers:
        racer.communicate()
        assert racer.returncode == 0


def test_two_processes_that_save_at_once_leave_one_whole_model(tmp_path):
    check_races(tmp_path, 20)
