"""Puts the code that several test folders share on the path."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / "support")]  # importmode importlib does not add it
