"""Imports onnx_ir without sympy, which it needs for arithmetic with symbolic lengths alone.

sympy takes .24 s of CPU time to load, a fifth of converting a small model with data.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

_NAME = "sympy"


class _Late(ModuleType):
    """Takes the place of sympy in onnx_ir, and loads it when something of it is used."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(_NAME) is self:  # onnx_ir is being imported, and lists functions
            return partial(_call, name)
        return getattr(import_module(_NAME), name)


def _call(name: str, *arguments: Any) -> Any:
    return getattr(import_module(_NAME), name)(*arguments)


def _import_onnx_ir() -> None:
    """Import onnx_ir, if nothing has; what else imports sympy gets the module itself."""
    if {"onnx_ir", _NAME} & sys.modules.keys():
        return
    sys.modules[_NAME] = _Late(_NAME)
    try:
        import_module("onnx_ir")
    finally:
        del sys.modules[_NAME]


_import_onnx_ir()
