"""Add the folders of shared code: importmode importlib does not."""

import sys
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"
HERE = Path(__file__).parent
for folder in map(str, (TOOLS, HERE, HERE.parent / "support", HERE.parent / "training_info")):
    if folder not in sys.path:
        sys.path.append(folder)
