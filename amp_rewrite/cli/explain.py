"""`amp-rewrite explain`: why each node has its type."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from amp_rewrite import targets
from amp_rewrite.api import rewrite
from amp_rewrite.cli import common
from amp_rewrite.report.explain import explain as explain_node


def explain(
    model: Annotated[Path, typer.Argument(help="The ONNX model, before rewriting.")],
    nodes: Annotated[
        list[str] | None, typer.Argument(help="Node names; without any, every float32 node.")
    ] = None,
    precision: common.Precision = "float16",
    target: common.Target = targets.DEFAULT,
    lists: common.ListFiles = None,
    level: common.Level = "default",
    keep_io_types: common.KeepIoTypes = True,
    keep_io: common.KeepIo = None,
    preserve: common.Preserve = None,
    deny_node: common.DenyNode = None,
    allow_node: common.AllowNode = None,
    weights: common.Weights = "convert",
    infer_after_allow: common.InferAfterAllow = True,
    inline_functions: common.InlineFunctions = False,
) -> None:
    """Print why each NODE of MODEL becomes low precision or stays float32."""
    report = rewrite(model, **common.rewrite_arguments(locals())).report
    out = common.console()
    names = nodes or list(dict.fromkeys(n.name for n in report.nodes if n.variables))
    for name in names:
        out.print(explain_node(report, name), markup=False)
