"""The ports of docs/porting.md lose what the same training loses in PyTorch."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import ROOT, blocks_of

import amp_rewrite as amp

CURVES = json.loads((ROOT / "tests/support/porting_curves.json").read_text("utf-8"))


def test_the_ports_lose_what_pytorch_loses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", amp.AmpWarning)
        for block in blocks_of(ROOT / "docs" / "porting.md"):
            if block.language == "python":
                exec(compile(block.text, "docs/porting.md", "exec"), names)
    for name in ("tf1", "keras"):
        ours, theirs = np.array(names[f"{name}_losses"]), np.array(CURVES[name])
        assert len(ours) == len(theirs) == 90
        # float16 has 11 bits, so that a loss near 2 is off by about 1e-3; it adds up along a curve
        np.testing.assert_allclose(ours, theirs, rtol=0.01, atol=2e-3)
        assert ours[-10:].mean() < 0.2 * ours[:3].mean()
