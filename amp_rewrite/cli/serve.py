"""`amp-rewrite serve`: compare runs in a browser while they train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from amp_rewrite.cli import common
from amp_rewrite.loop.run_page.run_folder import RunFolder
from amp_rewrite.loop.run_page.server import HOST, PORT, give_way, server


def serve(
    run_dir: Annotated[
        Path, typer.Argument(help="The folder in which train --page writes, a page for each run.")
    ],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen at; 0 is a free one.")
    ] = PORT,
    host: Annotated[
        str, typer.Option(help="The address to listen at; other machines cannot reach it.")
    ] = HOST,
    quiet: Annotated[bool, typer.Option(help="Print errors only.")] = False,
) -> None:
    """Serve the runs in RUN_DIR to a browser on this machine, in one page that compares them.

    Ctrl-C ends it.
    """
    serving = server(RunFolder(run_dir), host, port)
    give_way()
    if not quiet:
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{serving.effective_port}/"
        common.console().print(f"{address} has the runs; Ctrl-C ends")
    serving.run()
    raise typer.Exit(common.INTERRUPTED)  # waitress ends when it is interrupted
