"""The groups in which a command's help shows its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typer.core import TyperCommand

MAIN = "Options"
"""The first group: what most users need."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Types": (
        *("lists", "level", "keep_io_types", "keep_io_types_names", "keep_io", "weights", "store"),
        *("overflow", "only", "inline_functions", "opset", "dims"),
    ),
    "Rules": (
        *("preserve", "deny_nodes", "allow_nodes", "deny_ops", "allow_ops", "variables"),
        *("input_ranges", "strict"),
    ),
    "Checking": (
        *(
            "verify",
            "stress",
            "stress_budget",
            "budget",
            "provider",
            "write_failed",
        ),
        *("atol", "seed", "input_range", "held_out"),
    ),
    "Output": (
        *("report", "html", "annotate", "dry_run", "replace", "quiet", "verbose"),
        *("metrics", "tensorboard"),
    ),
    "Checkpoints": ("checkpoint", "checkpoint_every", "resume"),
    "Optimizer": ("option", "accumulate"),
    "Weights": ("freeze", "unfreeze"),
    "Loss scale": ("loss_scale", "loss_scale_option", "conditional", "max_skips"),
    "Advanced": (
        *("infer_after_allow", "move_casts", "fetch", "cross_shard", "shards"),
        *("emulate", "threads", "shuffle", "loss_option"),
    ),
}
"""Group -> the parameters of commands that stand there; every other one stands in the first."""

_FEW = 10
"""Up to this many options stand in one group."""

_WIDTH = 140
"""Columns that a help takes at most; it takes as many as the terminal has."""

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": _WIDTH}
"""What all commands have in common."""


class GroupedCommand(TyperCommand):
    """A command whose help shows its options in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options of each group."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], MAIN: []}
        sections |= {name: [] for name in GROUPS}
        parameters = self.get_params(ctx)
        options = [p for p in parameters if p.param_type_name == "option"]
        group_of = {name: group for group, names in GROUPS.items() for name in names}
        if len(options) <= _FEW:
            group_of = {}
        for parameter in parameters:
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            is_option = parameter.param_type_name == "option"
            name = group_of.get(parameter.name or "", MAIN) if is_option else "Arguments"
            sections[name].append(record)
        for name, rows in sections.items():
            if rows:
                with formatter.section(name):
                    formatter.write_dl(rows)
