"""sympy is loaded when somebody computes with symbolic lengths, not before."""

from __future__ import annotations

import subprocess
import sys

import pytest

COUNTS = """
import sys
import amp_rewrite as amp
amp.{name}
import onnx_ir as ir
found = ["sympy" in sys.modules, str(ir.SymbolicDim("N"))]
found += [str(ir.SymbolicDim("max(N, 2)") + 1), "sympy" in sys.modules]
import sympy
print(*found, str(ir.SymbolicDim(sympy.Symbol("K"))), sep=";")
"""


@pytest.mark.parametrize("name", ["convert", "Evaluator"])
def test_sympy_is_loaded_for_arithmetic_with_lengths_alone(name: str) -> None:
    code = COUNTS.format(name=name)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False;N;Max(2, N) + 1;True;K"
