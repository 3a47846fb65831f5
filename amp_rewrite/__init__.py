"""Automatic mixed precision for ONNX, as a compiler pass."""

import typing as _typing

if _typing.TYPE_CHECKING:  # what type checkers read; a test compares it with what runs
    from amp_rewrite import callbacks as callbacks
    from amp_rewrite import distributed as distributed
    from amp_rewrite import errors as errors
    from amp_rewrite import loss_scaling as loss_scaling
    from amp_rewrite import losses as losses
    from amp_rewrite import optimizers as optimizers
    from amp_rewrite.base.progress import progress_bar as progress_bar
    from amp_rewrite.base.version import __version__ as __version__
    from amp_rewrite.distributed import CrossShardOptimizer as CrossShardOptimizer
    from amp_rewrite.errors import AmpError as AmpError
    from amp_rewrite.errors import AmpWarning as AmpWarning
    from amp_rewrite.grad.rule import IndexedSlices as IndexedSlices
    from amp_rewrite.graph.io.load import load as load
    from amp_rewrite.graph.io.save import save as save
    from amp_rewrite.graph.io.save import to_proto as to_proto
    from amp_rewrite.loop.doctor import doctor as doctor
    from amp_rewrite.loop.trainer import Trainer as Trainer
    from amp_rewrite.loop.trainer import train as train
    from amp_rewrite.loss_scaling import DynamicLossScale as DynamicLossScale
    from amp_rewrite.loss_scaling import FixedLossScale as FixedLossScale
    from amp_rewrite.loss_scaling import LossScale as LossScale
    from amp_rewrite.loss_scaling import LossScaleError as LossScaleError
    from amp_rewrite.loss_scaling import LossScaleOptimizer as LossScaleOptimizer
    from amp_rewrite.loss_scaling import (
        MixedPrecisionLossScaleOptimizer as MixedPrecisionLossScaleOptimizer,
    )
    from amp_rewrite.loss_scaling import UncheckedLossScale as UncheckedLossScale
    from amp_rewrite.numerics.budget.error_budget import error_budget as error_budget
    from amp_rewrite.numerics.budget.tune import tune as tune
    from amp_rewrite.numerics.compare.verdict import Verdict as Verdict
    from amp_rewrite.numerics.compare.verify import verify as verify
    from amp_rewrite.numerics.compare.verify_report import VerifyReport as VerifyReport
    from amp_rewrite.numerics.convert.conversion import Conversion as Conversion
    from amp_rewrite.numerics.convert.convert import convert as convert
    from amp_rewrite.numerics.convert.upgrade import RaisedModel as RaisedModel
    from amp_rewrite.numerics.convert.upgrade import raise_opset as raise_opset
    from amp_rewrite.numerics.emulate import Evaluator as Evaluator
    from amp_rewrite.numerics.emulate import evaluate as evaluate
    from amp_rewrite.numerics.folder_commands import convert_folder as convert_folder
    from amp_rewrite.numerics.folder_report import FolderReport as FolderReport
    from amp_rewrite.numerics.ranges.calibrate import Calibration as Calibration
    from amp_rewrite.numerics.ranges.calibrate import calibrate as calibrate
    from amp_rewrite.numerics.repair import repair as repair
    from amp_rewrite.numerics.repair_report import Repair as Repair
    from amp_rewrite.numerics.safety_check import check as check
    from amp_rewrite.numerics.safety_report import SafetyReport as SafetyReport
    from amp_rewrite.oplists import OpLists as OpLists
    from amp_rewrite.oplists import load_lists as load_lists
    from amp_rewrite.oplists.list_check import CheckReport as CheckReport
    from amp_rewrite.oplists.list_check import check_lists as check_lists
    from amp_rewrite.policy import Policy as Policy
    from amp_rewrite.rewriting.api import RewriteResult as RewriteResult
    from amp_rewrite.rewriting.api import explain as explain
    from amp_rewrite.rewriting.api import rewrite as rewrite
    from amp_rewrite.rewriting.plan.options import RewriteOptions as RewriteOptions
    from amp_rewrite.rewriting.report.rewrite_report import Report as Report
    from amp_rewrite.rewriting.widen import WideResult as WideResult
    from amp_rewrite.rewriting.widen import widen as widen
    from amp_rewrite.training.diagnosis.diagnosis import Diagnosis as Diagnosis
    from amp_rewrite.training.global_state import (
        disable_mixed_precision_graph_rewrite as disable_mixed_precision_graph_rewrite,
    )
    from amp_rewrite.training.global_state import (
        disable_mixed_precision_graph_rewrite_v1 as disable_mixed_precision_graph_rewrite_v1,
    )
    from amp_rewrite.training.global_state import (
        enable_mixed_precision_graph_rewrite as enable_mixed_precision_graph_rewrite,
    )
    from amp_rewrite.training.global_state import (
        enable_mixed_precision_graph_rewrite_v1 as enable_mixed_precision_graph_rewrite_v1,
    )
    from amp_rewrite.training.global_state import global_policy as global_policy
    from amp_rewrite.training.global_state import (
        register_loss_scale_wrapper as register_loss_scale_wrapper,
    )
    from amp_rewrite.training.global_state import set_global_policy as set_global_policy
    from amp_rewrite.training.graph.freeze import freeze as freeze
    from amp_rewrite.training.graph.freeze import frozen as frozen
    from amp_rewrite.training.graph.freeze import unfreeze as unfreeze
    from amp_rewrite.training.graph.training_graph import GraphValue as GraphValue
    from amp_rewrite.training.graph.training_graph import value as value
    from amp_rewrite.training.inject import inject_loss_scaling as inject_loss_scaling
    from amp_rewrite.training.loss_scaling.loss_scale import get_loss_scale as get_loss_scale
    from amp_rewrite.training.session.training_session import TrainingSession as TrainingSession
    from amp_rewrite.training.step.build_step import build_step as build_step
    from amp_rewrite.training.training_operators import (
        lower_training_operators as lower_training_operators,
    )
else:  # a name is imported when it is first asked for: what rewrites loads nothing that trains
    from importlib import import_module as _import_module
    from importlib.util import find_spec as _find_spec
    from sys import modules as _modules

    _NAMES = {
        "": "callbacks distributed errors loss_scaling losses optimizers",
        "rewriting.api": "RewriteResult explain rewrite",
        "distributed": "CrossShardOptimizer",
        "numerics.emulate": "Evaluator evaluate",
        "errors": "AmpError AmpWarning",
        "training.global_state": (
            "disable_mixed_precision_graph_rewrite disable_mixed_precision_graph_rewrite_v1"
            " enable_mixed_precision_graph_rewrite enable_mixed_precision_graph_rewrite_v1"
            " global_policy register_loss_scale_wrapper set_global_policy"
        ),
        "grad.rule": "IndexedSlices",
        "graph.io.load": "load",
        "graph.io.save": "save to_proto",
        "training.inject": "inject_loss_scaling",
        "oplists.list_check": "CheckReport check_lists",
        "loss_scaling": (
            "DynamicLossScale FixedLossScale LossScale LossScaleError LossScaleOptimizer"
            " MixedPrecisionLossScaleOptimizer UncheckedLossScale"
        ),
        "training.loss_scaling.loss_scale": "get_loss_scale",
        "numerics.safety_check": "check",
        "numerics.compare.verdict": "Verdict",
        "numerics.compare.verify": "verify",
        "numerics.compare.verify_report": "VerifyReport",
        "numerics.convert.conversion": "Conversion",
        "numerics.convert.convert": "convert",
        "numerics.folder_report": "FolderReport",
        "numerics.folder_commands": "convert_folder",
        "numerics.convert.upgrade": "RaisedModel raise_opset",
        "numerics.ranges.calibrate": "Calibration calibrate",
        "numerics.repair": "Repair repair",
        "numerics.safety_report": "SafetyReport",
        "numerics.budget.error_budget": "error_budget",
        "numerics.budget.tune": "tune",
        "oplists": "OpLists load_lists",
        "policy": "Policy",
        "base.progress": "progress_bar",
        "rewriting.report.rewrite_report": "Report",
        "rewriting.plan.options": "RewriteOptions",
        "rewriting.widen": "WideResult widen",
        "training.session.training_session": "TrainingSession",
        "training.step.build_step": "build_step",
        "training.diagnosis.diagnosis": "Diagnosis",
        "loop.doctor": "doctor",
        "loop.trainer": "Trainer train",
        "training.graph.freeze": "freeze frozen unfreeze",
        "training.graph.training_graph": "GraphValue value",
        "training.training_operators": "lower_training_operators",
        "base.version": "__version__",
    }
    """Module -> the public names in it; those of the package itself are modules."""

    _HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
    __all__ = sorted(_HOMES)

    def __getattr__(name):
        from amp_rewrite.base.hints import hinted_in

        if name not in _HOMES:
            raise _unknown(name)
        home = _HOMES[name]
        if not home:
            return _import_module(f"{__name__}.{name}")  # which makes it an attribute
        public = globals()[name] = hinted_in(_import_module(f"{__name__}.{home}"), name)
        return public

    def _unknown(name):
        """Return the error about an unknown name, with what to use in its place."""
        if _find_spec(f"{__name__}.{name}"):  # `from amp_rewrite import targets` asks here first
            return AttributeError(f"import {__name__}.{name} before", name=name)
        from amp_rewrite.base.hints import no_attribute

        names = [*__all__]
        for face in _NAMES[""].split() if name[0] != "_" else ():
            module = _import_module(f"{__name__}.{face}")
            names += (f"{face}.{n}" for n in getattr(module, "__all__", dir(module)))
        return no_attribute(_modules[__name__], name, names)

    def __dir__():
        return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
