"""Inputs that a model is tried with where there are no data: plausible ones, and stress."""

from amp_rewrite.base import late_sympy  # noqa: F401 # pyright: ignore[reportUnusedImport] before onnx_ir
