"""Models whose pages show everything: both precisions, casts, branches, folders, odd names."""

from __future__ import annotations

import onnx
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.page.overview import Evidence
from amp_rewrite.rewriting.report.next_steps import Names

BRANCHES = """g (float[2,4] x, bool b) => (float[2,4] y)
  <float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}, float[4] big = {98000000.0,1,1,1},
   int64[1] axis = {1}> {
  ["enc/dot"] h = MatMul(x, w) ["enc/act"] r = Relu(h) two = Constant<value = float {2.0}>()
  ["norm/square"] s = Pow(r, two) ["norm/mean"] m = ReduceMean(s, axis)
  ["norm/add"] a = Add(m, h) ["norm/div"] d = Div(a, r) [scale] k = Div(d, big)
  [branch] i = If(b) <then_branch = t () => (float[2,4] p) { [inner] p = MatMul(k, w) },
                      else_branch = e () => (float[2,4] q) { [other] q = Identity(k) }>
  [last] y = MatMul(i, w) }"""

NAMES = Names("model.onnx", "model.fp16.onnx")


def result_of(model: str | onnx.ModelProto) -> amp.RewriteResult:
    """Return the rewrite of a model, given as text or message."""
    return amp.rewrite(parse(model) if isinstance(model, str) else model)


def bare_evidence() -> Evidence:
    """Return evidence of a rewrite of which nothing else is known."""
    return Evidence(NAMES)
