"""Verify: how far a rewritten model is from the original."""

from amp_rewrite.base import late_sympy  # noqa: F401 # pyright: ignore[reportUnusedImport] before onnx_ir
