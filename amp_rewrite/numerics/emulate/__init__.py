"""float16 and bfloat16 arithmetic on a CPU, number by number."""

from amp_rewrite.base import late_sympy  # noqa: F401 # pyright: ignore[reportUnusedImport] before onnx_ir
from amp_rewrite.numerics.emulate.evaluator import Evaluator, evaluate

__all__ = ["Evaluator", "evaluate"]
