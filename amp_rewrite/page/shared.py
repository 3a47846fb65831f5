"""What pages of every kind are made of, beside their own scripts: files of `static/`."""

from __future__ import annotations

PLOTS = "vendor/uPlot.iife.min.js"
"""The library that draws pictures of numbers, as its author built it."""

SHARED_STYLES = ("vendor/uPlot.min.css", "base.css")

SHARED_SCRIPTS = ("elements.js", "plot.js")
