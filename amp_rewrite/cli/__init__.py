"""The `amp-rewrite` command: argument parsing and printing, one command a file, no logic."""

from amp_rewrite.cli.main import main

__all__ = ["main"]
