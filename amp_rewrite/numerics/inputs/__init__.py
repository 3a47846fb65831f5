"""Inputs that a model is tried with where there are no data: plausible ones, and stress."""

import amp_rewrite.base.late_sympy  # noqa: F401 # pyright: ignore[reportUnusedImport] before onnx_ir
