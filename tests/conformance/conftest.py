"""Puts the code that several test folders share on the path."""

import sys
from pathlib import Path

# importmode importlib adds neither folder.
sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]
