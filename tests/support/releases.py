"""Which releases are installed, of packages of which pyproject.toml allows older ones."""

from __future__ import annotations

from importlib import import_module

import onnx
import pytest

Release = tuple[int, ...]


def before(package: str, first: Release) -> bool:
    """Return whether a package is older than a release, such as (1, 29)."""
    return tuple(map(int, import_module(package).__version__.split(".")[:2])) < first


def needs(package: str, first: Release, why: str) -> None:
    """Skip the test where a package is older than the first release that does as it should.

    Args:
        package: What is imported.
        first: The release.
        why: What older ones do.
    """
    if before(package, first):
        pytest.skip(f"{package} before {'.'.join(map(str, first))} {why}")


def needs_opset(opset: int) -> None:
    """Skip the test where onnx does not know an opset of ai.onnx yet."""
    if opset > onnx.defs.onnx_opset_version():
        pytest.skip(f"onnx {onnx.__version__} does not know opset {opset}")
