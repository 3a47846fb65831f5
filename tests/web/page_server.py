"""Open a page in headless Chromium and wait for the text that it shows."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

PAGE = "page.html"

SECONDS = 120

REPORTER = """<script>
  const report = (text) => fetch("/shown", { method: "POST", body: text });
  addEventListener("error", (event) => report(`error: ${event.message}`));
  addEventListener("unhandledrejection", (event) => report(`error: ${event.reason}`));
  const timer = setInterval(() => {
    const text = document.body?.textContent.trim();
    if (text) {
      clearInterval(timer);
      report(text);
    }
  }, 50);
</script>
"""
"""Goes in front of the page: it tells the server what the page shows, or why it fails."""


def shown(chromium: str, page: str, files: Mapping[str, Path], *flags: str) -> str:
    """Return the text that a page shows.

    Args:
        chromium: The program.
        page: The page.
        files: Path on the server -> a file, or a folder, that the page reads.
        *flags: Of the program.
    """
    with _serving(page, files) as (address, texts):
        profile = next(iter(files.values())).parent / "profile"
        command = [chromium, "--headless=new", "--no-sandbox", f"--user-data-dir={profile}"]
        with subprocess.Popen(
            [*command, *flags, f"{address}/{PAGE}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as browser:
            try:
                return texts.get(timeout=SECONDS)
            except Empty:
                return f"error: nothing within {SECONDS} seconds"
            finally:
                browser.terminate()


@contextmanager
def _serving(page: str, files: Mapping[str, Path]) -> Iterator[tuple[str, Queue[str]]]:
    texts: Queue[str] = Queue()

    class Handler(SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            name = path.partition("?")[0].lstrip("/")
            first, _, rest = name.partition("/")
            return str(files.get(first, Path("/nowhere")) / rest)

        def do_GET(self) -> None:
            if self.path != f"/{PAGE}":
                super().do_GET()
                return
            content = (REPORTER + page).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            texts.put(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the name in the base class
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", texts
        finally:
            server.shutdown()
