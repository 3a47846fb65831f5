"""float16 and bfloat16 arithmetic on a CPU, number by number."""

from amp_rewrite.numerics.emulate.evaluator import Evaluator, evaluate
from amp_rewrite.numerics.emulate.model import emulate_model

__all__ = ["Evaluator", "emulate_model", "evaluate"]
