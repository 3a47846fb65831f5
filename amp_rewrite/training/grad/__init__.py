"""Gradients: a rule per operator, and the walk that applies them."""

from amp_rewrite.errors import GradientError
from amp_rewrite.training.builder.builder import Builder
from amp_rewrite.training.grad.rule import IndexedSlices
from amp_rewrite.training.grad.walk import gradients

__all__ = ["Builder", "GradientError", "IndexedSlices", "gradients"]
