"""Automatic mixed precision for ONNX, as a compiler pass."""

from amp_rewrite.api import RewriteResult, rewrite
from amp_rewrite.emulate import Evaluator, evaluate
from amp_rewrite.errors import AmpError
from amp_rewrite.graph.load import load
from amp_rewrite.graph.save import save, to_proto
from amp_rewrite.list_check import CheckReport, check_lists
from amp_rewrite.numerics.calibrate import Calibration, calibrate
from amp_rewrite.numerics.localise import localise
from amp_rewrite.numerics.search import tune
from amp_rewrite.numerics.verify import verify
from amp_rewrite.numerics.verify_report import VerifyReport
from amp_rewrite.oplists import OpLists, load_lists
from amp_rewrite.report.explain import explain
from amp_rewrite.report.records import Report

__all__ = [
    "AmpError",
    "Calibration",
    "CheckReport",
    "Evaluator",
    "OpLists",
    "Report",
    "RewriteResult",
    "VerifyReport",
    "calibrate",
    "check_lists",
    "evaluate",
    "explain",
    "load",
    "load_lists",
    "localise",
    "rewrite",
    "save",
    "to_proto",
    "tune",
    "verify",
]
