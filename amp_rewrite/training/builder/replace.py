"""Put a value in the place of another one."""

from __future__ import annotations

import onnx_ir as ir


def take_place(new: ir.Value, old: ir.Value) -> None:
    """Let a value be read where another one is, under its name; what that does not tell stays."""
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    new.name, old.name = old.name or new.name, f"{old.name}:before"
    new.type, new.shape = old.type or new.type, old.shape or new.shape
