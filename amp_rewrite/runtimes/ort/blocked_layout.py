"""The layout in blocks of channels (NCHWc) in which ONNX Runtime's convolutions are fastest.

Its optimizer moves Conv there where weights are constants, with operators of a domain of its own,
which files that it has optimized name too.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import RunError
from amp_rewrite.runtimes.ort.sessions import Session, session_options

DOMAIN, VERSION = "com.microsoft.nchwc", 1
_CHANNELS = 16
"""A multiple of every block."""


@cache
def channel_block() -> int:
    """Return how many channels lie side by side on this machine's CPU; 0 where none do."""
    fed = np.arange(2 * _CHANNELS, dtype=np.float32).reshape(1, _CHANNELS, 1, 2)
    x, y = (ir.Value(name=n, type=ir.TensorType(ir.DataType.FLOAT)) for n in "xy")
    x.shape = ir.Shape(fed.shape)
    node = ir.Node(DOMAIN, "ReorderInput", [x], outputs=[y])
    imports = {"": 17, DOMAIN: VERSION}
    model = ir.Model(ir.Graph([x], [y], nodes=[node], opset_imports=imports), ir_version=8)
    try:
        session = Session(model, options=session_options(threads=1))
        (blocks,) = session.run({"x": fed})
    except RunError:
        return 0
    block = int(np.flatnonzero(blocks.reshape(-1) == 1)[0])  # the first channel's second position
    return block if block > 1 else 0
