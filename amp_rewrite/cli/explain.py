"""`amp-rewrite explain`: why each node has its type."""

from __future__ import annotations

from pathlib import Path

from amp_rewrite.base.progress import progress_bar
from amp_rewrite.cli import common
from amp_rewrite.cli.parameters import argument
from amp_rewrite.cli.rewrite_options import with_rewrite_options
from amp_rewrite.numerics.convert.opset import upgraded
from amp_rewrite.rewriting.api import rewrite
from amp_rewrite.rewriting.plan.options import RewriteOptions
from amp_rewrite.rewriting.read_source import read_source
from amp_rewrite.rewriting.report.explain import explain as explain_node


@with_rewrite_options
def explain(
    model: Path = argument("The ONNX model, before rewriting."),
    nodes: list[str] | None = argument(
        "Names or patterns of nodes, modules (encoder.layers.*) or values. Default: all nodes.",
        None,
    ),
    *,
    opset: str = common.OPSET,
    options: RewriteOptions,
) -> None:
    """Explain why each NODE of MODEL becomes 16-bit or stays float32."""
    out = common.console()
    with progress_bar("rewriting"):
        flat = read_source(model, inline_functions=options.inline_functions)
        result = rewrite(upgraded(flat, opset, options)[0], options)
        report = result.report
    common.say_target(options, report.target, out)
    names = nodes or list(dict.fromkeys(n.name for n in report.nodes if n.variables))
    for name in names:
        out.print_all(explain_node(result, name).splitlines())
