"""Automatic mixed precision for ONNX, as a compiler pass."""

from amp_rewrite.errors import AmpError
from amp_rewrite.graph.load import load
from amp_rewrite.graph.save import save, to_proto
from amp_rewrite.list_check import CheckReport, check_lists
from amp_rewrite.oplists import OpLists, load_lists
from amp_rewrite.report.explain import explain
from amp_rewrite.report.records import Report
from amp_rewrite.rewrite.driver import RewriteResult, rewrite

__all__ = [
    "AmpError",
    "CheckReport",
    "OpLists",
    "Report",
    "RewriteResult",
    "check_lists",
    "explain",
    "load",
    "load_lists",
    "rewrite",
    "save",
    "to_proto",
]
