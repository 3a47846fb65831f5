"""Automatic mixed precision for ONNX, as a compiler pass."""

from amp_rewrite import distributed, loss_scaling, losses, optimizers
from amp_rewrite.api import RewriteResult, rewrite
from amp_rewrite.distributed import CrossShardOptimizer
from amp_rewrite.emulate import Evaluator, evaluate
from amp_rewrite.errors import AmpError, AmpWarning
from amp_rewrite.global_state import (
    disable_mixed_precision_graph_rewrite,
    disable_mixed_precision_graph_rewrite_v1,
    enable_mixed_precision_graph_rewrite,
    enable_mixed_precision_graph_rewrite_v1,
    global_policy,
    register_loss_scale_wrapper,
    set_global_policy,
)
from amp_rewrite.grad.indexed_slices import IndexedSlices
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.save import save, to_proto
from amp_rewrite.inject import inject_loss_scaling
from amp_rewrite.list_check import CheckReport, check_lists
from amp_rewrite.loss_scaling import (
    DynamicLossScale,
    FixedLossScale,
    LossScale,
    LossScaleError,
    LossScaleOptimizer,
    MixedPrecisionLossScaleOptimizer,
)
from amp_rewrite.loss_scaling import get as get_loss_scale
from amp_rewrite.numerics.compare.verify import verify
from amp_rewrite.numerics.compare.verify_report import VerifyReport
from amp_rewrite.numerics.ranges.calibrate import Calibration, calibrate
from amp_rewrite.numerics.search.localise import localise
from amp_rewrite.numerics.search.tune import tune
from amp_rewrite.oplists import OpLists, load_lists
from amp_rewrite.policy import Policy
from amp_rewrite.report.explain import explain
from amp_rewrite.report.records import Report
from amp_rewrite.rewriting.options import RewriteOptions
from amp_rewrite.train import TrainingSession, build_step
from amp_rewrite.training.training_graph import GraphValue, value
from amp_rewrite.training_info import (
    lower_training_operators,
    read_training_info,
    write_training_info,
)

for _kind in (LossScaleOptimizer, CrossShardOptimizer):
    optimizers.register(_kind)  # the floors above optimizers, which cannot name them itself

__all__ = [
    "AmpError",
    "AmpWarning",
    "Calibration",
    "CheckReport",
    "CrossShardOptimizer",
    "DynamicLossScale",
    "Evaluator",
    "FixedLossScale",
    "GraphValue",
    "IndexedSlices",
    "LossScale",
    "LossScaleError",
    "LossScaleOptimizer",
    "MixedPrecisionLossScaleOptimizer",
    "OpLists",
    "Policy",
    "Report",
    "RewriteOptions",
    "RewriteResult",
    "TrainingSession",
    "VerifyReport",
    "build_step",
    "calibrate",
    "check_lists",
    "disable_mixed_precision_graph_rewrite",
    "disable_mixed_precision_graph_rewrite_v1",
    "distributed",
    "enable_mixed_precision_graph_rewrite",
    "enable_mixed_precision_graph_rewrite_v1",
    "evaluate",
    "explain",
    "get_loss_scale",
    "global_policy",
    "inject_loss_scaling",
    "load",
    "load_lists",
    "localise",
    "loss_scaling",
    "losses",
    "lower_training_operators",
    "optimizers",
    "read_training_info",
    "register_loss_scale_wrapper",
    "rewrite",
    "save",
    "set_global_policy",
    "to_proto",
    "tune",
    "value",
    "verify",
    "write_training_info",
]
