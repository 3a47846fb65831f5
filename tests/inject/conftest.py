"""Add the folders of shared code: importmode importlib does not."""

import sys
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"
for folder in (str(TOOLS), str(Path(__file__).parent)):
    if folder not in sys.path:
        sys.path.append(folder)
