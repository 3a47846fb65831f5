"""`amp-rewrite explain`: why each node has its type."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from amp_rewrite.api import rewrite
from amp_rewrite.cli import common
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.report.explain import explain as explain_node
from amp_rewrite.rewriting.options import RewriteOptions


@with_rewrite_options()
def explain(
    model: Annotated[Path, typer.Argument(help="The ONNX model, before rewriting.")],
    nodes: Annotated[
        list[str] | None, typer.Argument(help="Node names; without any, every float32 node.")
    ] = None,
    *,
    options: RewriteOptions,
) -> None:
    """Print why each NODE of MODEL becomes low precision or stays float32."""
    report = rewrite(model, options).report
    out = common.console()
    names = nodes or list(dict.fromkeys(n.name for n in report.nodes if n.variables))
    for name in names:
        out.print_lines(explain_node(report, name))
