"""Images in a folder for each class, as data sets of pictures are handed out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from amp_rewrite.errors import DataError
from amp_rewrite.training.data.examples import Array, Chunk, ChunkedExamples

IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
_WHITE = 255.0
_GRAY = ("1", "L")


def classes_of(folder: Path) -> list[Path]:
    """Return the folders inside a folder that hold images, by name: those of classes."""
    inside = (p for p in sorted(folder.iterdir()) if p.is_dir() and not p.name.startswith("."))
    return [path for path in inside if _images_in(path)]


def read_images(folder: Path, names: Sequence[str]) -> ChunkedExamples:
    """Return the images of a folder, and the numbers of their classes.

    Pixels are float32 (N, C, H, W) from 0 to 1: one channel if all images are gray, else red,
    green and blue. Classes are int64 (N,), numbered from 0 in the order of the folders' names. An
    image is read when a batch needs it.

    Args:
        folder: The folder, with one for each class in it.
        names: The inputs of the step, that of the images first, that of the classes second.

    Raises:
        DataError: Pillow is not installed, there are not two inputs, a file is no image, or images
            have different sizes.
    """
    if len(names) != 2:
        raise DataError(
            "a folder of images by class feeds two inputs",
            where=folder,
            found=", ".join(names) or "no names of inputs",
            expected="one of images and one of classes",
        )
    files = [(path, k) for k, c in enumerate(classes_of(folder)) for path in _images_in(c)]
    first, _ = files[0]
    headers = {path: _header(path) for path, _ in files}
    for path, (size, _) in headers.items():
        if size != headers[first][0]:
            raise DataError(
                "the images have different sizes",
                where=path,
                found=" x ".join(map(str, size)),
                expected=f"{' x '.join(map(str, headers[first][0]))}, as {first.name} has",
                remedy="scale or crop them to one size",
            )
    mode = "L" if all(mode in _GRAY for _, mode in headers.values()) else "RGB"
    return ChunkedExamples([Chunk(1, partial(_read, f, k, mode, names)) for f, k in files], folder)


def _images_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGES)


def _open(path: Path) -> Any:
    try:
        image = import_module("PIL.Image")
    except ImportError as error:
        raise DataError(
            "reading images needs Pillow",
            where=path,
            found="it is not installed",
            remedy="pip install pillow",
        ) from error
    try:
        return image.open(path)
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: object) -> DataError:
    return DataError("the image cannot be read", where=path, found=error)


def _header(path: Path) -> tuple[tuple[int, int], str]:
    """Return width and height, and the mode of an image, without its pixels."""
    with _open(path) as image:
        return image.size, image.mode


def _read(path: Path, number: int, mode: str, names: Sequence[str]) -> dict[str, Array]:
    """Return one example."""
    with _open(path) as image:
        try:
            pixels = np.asarray(image.convert(mode), np.float32) / np.float32(_WHITE)
        except (OSError, ValueError, SyntaxError) as error:
            raise _unreadable(path, error) from error
    channels = pixels[None] if mode == "L" else pixels.transpose(2, 0, 1)
    return {names[0]: channels[None], names[1]: np.array([number], np.int64)}
