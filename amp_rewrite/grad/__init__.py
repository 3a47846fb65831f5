"""Gradients: a rule per operator, and the walk that applies them."""

from amp_rewrite.errors import GradientError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.rule import IndexedSlices
from amp_rewrite.grad.walk import gradients

__all__ = ["Builder", "GradientError", "IndexedSlices", "gradients"]
