"""Archives of arrays that are not what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.errors import DataError
from amp_rewrite.numerics.inputs.batches import batches


@pytest.mark.parametrize(
    ("name", "arrays", "said"),
    [
        ("plain.npz", {"arr_1": (1, 3)}, r"plain.npz: the data lack the input 'x'.*found arr_1"),
        ("keys.npz", {"image": (1, 3)}, r"numpy.savez\('.*keys.npz', \*\*\{'x': array\}\)"),
        ("flat.npz", {"x": (3,)}, r"flat.npz.*found \[3\].*add the batch axis: array\[None\]"),
        ("many.npz", {"x": (4, 3)}, r"found \[4, 3\].*split it into batches of 1, for example"),
    ],
)
def test_data_that_do_not_fit_are_answered_with_the_line_that_mends_them(
    tmp_path: Path, name: str, arrays: dict[str, tuple[int, ...]], said: str
) -> None:
    path = tmp_path / name
    zeros: dict[str, Any] = {key: np.zeros(shape, np.float32) for key, shape in arrays.items()}
    np.savez(path, **zeros)
    model = parse("g (float[1,3] x) => (float[1,3] y) { y = Relu(x) }")
    with pytest.raises(DataError, match=said):
        amp.verify(model, model, path)


def test_channels_at_the_other_end_and_floats_for_integers_are_answered() -> None:
    model = parse("g (float[1,3,8,8] x, int64[1] n) => (float[1,3,8,8] y) { y = Relu(x) }")
    image, number = np.zeros((1, 8, 8, 3), np.float32), np.zeros(1, np.float32)
    with pytest.raises(DataError, match=r"channels: numpy.moveaxis\(array, -1, 1\)"):
        amp.verify(model, model, {"x": image, "n": number})
    with pytest.raises(DataError, match=r"'n' has another type; .*astype\('int64'\)"):
        amp.verify(model, model, {"x": np.moveaxis(image, -1, 1), "n": number})


def test_numbers_are_no_strings() -> None:
    model = parse("g (string[2] x) => (string[2] y) { y = Identity(x) }")
    assert amp.evaluate(model, {"x": ["a", "b"]})["y"].tolist() == ["a", "b"]
    with pytest.raises(DataError, match="'x' has another type; found float64"):
        amp.evaluate(model, {"x": [1.5, 2.5]})


def test_an_array_without_a_name_is_that_of_the_only_input(tmp_path: Path) -> None:
    np.savez(tmp_path / "plain.npz", np.arange(3, dtype=np.float32)[None])
    model = parse("g (float[1,3] x) => (float[1,3] y) { y = Relu(x) }")
    assert amp.verify(model, model, tmp_path / "plain.npz").ok
    two = parse("g (float[1,3] x, float[1,3] z) => (float[1,3] y) { y = Add(x, z) }")
    with pytest.raises(DataError, match=r"lack the input 'x'.*found arr_0"):
        amp.verify(two, two, tmp_path / "plain.npz")


def test_bfloat16_that_numpy_saved_as_bytes_is_read_as_bfloat16(tmp_path: Path) -> None:
    path, bfloat16 = tmp_path / "in.npz", ml_dtypes.bfloat16
    given = np.array([[1.0, -0.5, 3.0]], bfloat16)
    np.savez(path, x=given)
    text = "g (bfloat16[1,3] x) => (bfloat16[1,3] y) { y = Relu(x) }"
    (batch,) = batches(path, ir.from_proto(parse(text)))
    assert batch["x"].dtype == bfloat16
    assert (batch["x"] == given).all()
    with pytest.raises(DataError, match=r"'x' has another type; found \|V2; expected float32"):
        next(batches(path, ir.from_proto(parse(text.replace("bfloat16", "float")))))
