"""Verify: how far a rewritten model is from the original."""

import amp_rewrite.base.late_sympy  # noqa: F401 # pyright: ignore[reportUnusedImport] before onnx_ir
