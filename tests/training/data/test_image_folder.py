"""Folders of images by class as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amp_rewrite.errors import DataError
from amp_rewrite.training.data.as_examples import read_examples

Image: Any = pytest.importorskip("PIL.Image")  # of the extra images, which CI has
NAMES = ("image", "class")


def put(path: Path, *, color: int | tuple[int, int, int], size: tuple[int, int] = (3, 2)) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    Image.new("L" if isinstance(color, int) else "RGB", size, color).save(path)


def read(folder: Path, **options: Any) -> dict[str, Any]:
    (batch,) = read_examples(folder, NAMES).epoch(100, **options)
    return batch


def test_the_names_of_folders_number_the_classes(tmp_path: Path) -> None:
    put(tmp_path / "dog" / "a.png", color=(255, 0, 51))
    put(tmp_path / "cat" / "b.png", color=(0, 255, 0))
    put(tmp_path / "cat" / "a.PNG", color=(0, 0, 0))
    (tmp_path / "cat" / "notes.txt").write_text("no image", "utf-8")
    (tmp_path / ".hidden").mkdir()
    batch = read(tmp_path)
    assert batch["class"].tolist() == [0, 0, 1]
    assert (batch["image"].shape, batch["image"].dtype) == ((3, 3, 2, 3), np.float32)
    np.testing.assert_allclose(batch["image"][:, :, 0, 0], [[0, 0, 0], [0, 1, 0], [1, 0, 0.2]])


def test_gray_images_have_one_channel_unless_another_one_has_colors(tmp_path: Path) -> None:
    put(tmp_path / "a" / "0.png", color=51)
    assert read(tmp_path)["image"].shape == (1, 1, 2, 3)
    put(tmp_path / "b" / "0.png", color=(255, 0, 0))
    np.testing.assert_allclose(read(tmp_path)["image"][:, :, 0, 0], [[0.2] * 3, [1, 0, 0]])


def test_classes_are_mixed_and_the_same_seed_gives_the_same_order(tmp_path: Path) -> None:
    for k in range(20):
        put(tmp_path / f"class{k // 10}" / f"{k:02}.png", color=k)
    order = read(tmp_path, seed=1)
    assert order["class"].tolist() != sorted(order["class"].tolist())
    assert (read(tmp_path, seed=1)["image"] == order["image"]).all()
    pixels = (order["image"][:, 0, 0, 0] * 255).round().astype(int)
    assert (pixels // 10 == order["class"]).all()


def _sizes(folder: Path) -> None:
    put(folder / "a" / "0.png", color=0)
    put(folder / "a" / "1.png", color=0, size=(4, 4))


def _damaged(folder: Path) -> None:
    (folder / "a").mkdir()
    (folder / "a" / "0.png").write_bytes(b"no image")


def _cut(folder: Path) -> None:
    (folder / "a").mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)
    Image.fromarray(noise).save(folder / "a" / "0.png")
    whole = (folder / "a" / "0.png").read_bytes()
    (folder / "a" / "0.png").write_bytes(whole[: len(whole) // 2])


REFUSED = {
    "other sizes": (_sizes, r"1\.png: the images have different sizes; found 4 x 4; expected 3 x"),
    "no image": (_damaged, r"0\.png: the image cannot be read"),
    "half an image": (_cut, r"0\.png: the image cannot be read"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_refused_by_name(case: str, tmp_path: Path) -> None:
    make, message = REFUSED[case]
    make(tmp_path)
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_step_of_other_inputs_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "a" / "0.png", color=0)
    with pytest.raises(DataError, match="feeds two inputs; found x, m, t"):
        read_examples(tmp_path, ("x", "m", "t"))
