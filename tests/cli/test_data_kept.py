"""No command writes over the data that it reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rewrite_text import parse

from amp_rewrite.cli.main import main

TEXT = "g (float[2,2] x) => (float[2,2] y) { h = MatMul(x, x) y = Exp(h) }"


@pytest.mark.share(2)
@pytest.mark.parametrize("place", ["in.npz", "batches", "./link.npz"])
@pytest.mark.parametrize(
    "arguments",
    [
        "calibrate MODEL --data DATA -o OUT",
        "tune MODEL --data DATA -o OUT",
        "convert MODEL --data DATA -o OUT",
        "convert MODEL --data DATA -o out.onnx --report OUT",
        "convert MODEL --data DATA -o out.onnx --html OUT",
        "repair MODEL --data DATA -o OUT",
        "check MODEL --data DATA --report OUT",
        "verify MODEL MODEL --data DATA --report OUT",
        "localise MODEL --data DATA --report OUT",
    ],
)
def test_data_are_not_written_over(
    arguments: str,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.onnx").write_bytes(parse(TEXT).SerializeToString())
    Path("batches").mkdir()
    for file in (Path("in.npz"), Path("batches/0.npz")):
        np.savez(file, x=np.ones((2, 2), np.float32))
    Path("link.npz").symlink_to("in.npz")
    output = "batches/0.npz" if place == "batches" else place
    before = Path(output).read_bytes()
    given = "in.npz" if place == "./link.npz" else place
    words = {"MODEL": "model.onnx", "DATA": given, "OUT": output}
    with pytest.raises(SystemExit) as leaving:
        main([words.get(word, word) for word in arguments.split()])
    assert leaving.value.code == 1
    assert "is a file of the data" in capsys.readouterr().err
    assert Path(output).read_bytes() == before


def test_the_report_of_localise_is_not_written_over_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(parse(TEXT).SerializeToString())
    before = model.read_bytes()
    with pytest.raises(SystemExit):
        main(["localise", str(model), "--report", str(model)])
    assert "would overwrite a model" in capsys.readouterr().err
    assert model.read_bytes() == before
