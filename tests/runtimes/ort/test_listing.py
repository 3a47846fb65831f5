"""What the installed runtime says that it has."""

import onnxruntime

from amp_rewrite.runtimes.ort.listing import kernel_rows, operator_schemas, runtime_in_words
from amp_rewrite.targets import CPU


def test_the_runtime_has_a_name_and_operators():
    assert runtime_in_words() == f"onnxruntime {onnxruntime.__version__}"
    assert ("com.microsoft", "FusedMatMul") in {(s.domain, s.name) for s in operator_schemas()}


def test_a_row_is_one_kernel():
    rows = [r for r in kernel_rows() if (r["provider"], r["domain"], r["op"]) == (CPU, "", "Sin")]
    assert {tuple(row["types"]["T"]) for row in rows} >= {("tensor(float)",), ("tensor(double)",)}
    assert {(row["since"], row["until"]) for row in rows} <= {(7, None), (7, 21), (22, None)}
