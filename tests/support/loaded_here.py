"""What a process that loads a file would say, said in the process of the tests."""

from __future__ import annotations

import onnxruntime

REFUSED = 3


def loaded_here(path: str, seconds: float) -> tuple[int, str]:
    """Return the exit status and the output of the program that loads a file for itself."""
    assert seconds > 0
    runtime = f"onnxruntime {onnxruntime.__version__}\n"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 whatever it says is what is told
        return REFUSED, f"{runtime}{error}\n"
    return 0, runtime
