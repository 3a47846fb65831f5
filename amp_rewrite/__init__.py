"""Automatic mixed precision for ONNX, as a compiler pass."""

from amp_rewrite.errors import AmpError
from amp_rewrite.graph.load import load
from amp_rewrite.graph.save import save, to_proto
from amp_rewrite.report.records import Report
from amp_rewrite.rewrite.driver import RewriteResult, rewrite

__all__ = ["AmpError", "Report", "RewriteResult", "load", "rewrite", "save", "to_proto"]
