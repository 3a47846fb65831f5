"""Make a release: version and changelog, wheel and sdist, checked as users will have them.

    python tools/release.py 0.2.0 --repository https://HOST/OWNER/amp_rewrite
    python tools/release.py 0.2.0 --rehearse       everything, but the checkout stays as it is

It works in a copy of the checkout: it sets the version and the date, builds the sdist and from it
the wheel, lets twine look at both, installs the wheel into empty environments on the lowest and on
the newest Python that pyproject.toml names, runs the smoke test and the demo there, and lets the
sdist test itself. Only when all of that has passed are the files in dist/ and the changed files in
the checkout. It uploads, tags and signs nothing; it prints the commands that do.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
SELF_TESTS = (
    *("tests/oplists", "tests/structure/test_packaging.py", "tests/cli/test_inputs.py"),
    *("tests/conformance/test_painting_cases.py", "tests/conformance/test_first_guesses.py"),
)
"""What the sdist runs of its tests: some that need nothing but the package and pytest."""
TEST_PACKAGES = ("hypothesis", "jedi", "pytest")

UNPACKED: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""How an archive is unpacked: Python 3.11.2, which Debian 12 has, knows no filter yet."""

_NOT_YET = "; there is none yet"
_UNTIL = "Releases install with `pip install 'amp-rewrite[cpu]'`"
_CLONE = "Clone this repository"
_REHEARSED = "https://example.org/amp_rewrite"


class ReleaseError(Exception):
    """Something stands in the way of a release; the message says what."""


def main(arguments: Sequence[str]) -> int:
    """Make the release; return 1 if something stands in its way."""
    options = _options(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="amp-release-") as folder:
            _release(options, Path(folder))
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("version", help="of the release, such as 0.2.0 or 0.2.0rc1")
    parser.add_argument("--repository", metavar="URL", help="where the project is; once is enough")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="default: dist/")
    parser.add_argument("--rehearse", action="store_true", help="change nothing in the checkout")
    return parser.parse_args(arguments)


def _release(options: argparse.Namespace, folder: Path) -> None:
    version: str = options.version
    if not VERSION.fullmatch(version):
        raise ReleaseError(f"not a version: {version}; expected 0.2.0 or 0.2.0rc1")
    files = _files()
    if not options.rehearse:
        _check_checkout(version)
    source = folder / "source"
    for name in files:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name)
    url = options.repository or (_REHEARSED if options.rehearse else None)
    changed = prepare(source, version, url, datetime.now(UTC).date().isoformat())
    kept = {name: (source / name).read_bytes() for name in changed}
    with_addresses(source, version)
    sdist, wheel = _built(source, folder)
    for python in pythons(source):
        _try_wheel(python, wheel, source, folder)
    _try_sdist(pythons(source)[-1], sdist, folder)
    options.output.mkdir(parents=True, exist_ok=True)
    for path in (sdist, wheel):
        shutil.copy2(path, options.output / path.name)
        print(f"made {options.output / path.name}")
    if options.rehearse:
        return
    for name, content in kept.items():
        (ROOT / name).write_bytes(content)
    print(f"changed {', '.join(kept)}", "to publish it:", sep="\n")
    print(f"  git commit -am 'Release {version}' && git tag v{version} && git push --tags")
    print(f"  twine upload {options.output / f'amp_rewrite-{version}'}*")


def prepare(source: Path, version: str, repository: str | None, date: str) -> list[str]:
    """Write a version, a date and addresses into a copy of the checkout.

    Args:
        source: The copy.
        version: The version.
        repository: The address of the project, where pyproject.toml has none.
        date: The day of the release.

    Returns:
        The names of the files that have changed.

    Raises:
        ReleaseError: The changelog has nothing to release, or no address is known.
    """
    texts: dict[str, str] = {}

    def edit(name: str, pattern: str, new: str, problem: str) -> None:
        before = texts.get(name) or (source / name).read_text("utf-8")
        after, count = re.subn(pattern, lambda _: new, before, count=1, flags=re.MULTILINE)
        if not count:
            raise ReleaseError(f"{name}: {problem}")
        texts[name] = after

    heading = r"^## \[[^\]]+\] - unreleased$"
    edit("CHANGELOG.md", heading, f"## [{version}] - {date}", "no section is unreleased")
    line = f'__version__ = "{version}"'
    edit("amp_rewrite/base/version.py", r'^__version__ = "[^"]+"$', line, "no version")
    edit("docs/op_lists.md", r"rev: v\S+$", f"rev: v{version}", "no revision of the hook")
    if _NOT_YET in (source / "README.md").read_text("utf-8"):
        edit("README.md", re.escape(_UNTIL + _NOT_YET), _UNTIL, "no line about releases")
    table = tomllib.loads((source / "pyproject.toml").read_text("utf-8"))
    if "urls" not in table["project"]:
        if repository is None:
            raise ReleaseError("pyproject.toml has no [project.urls]: name --repository URL")
        urls = addresses(repository)
        if _CLONE in (source / "README.md").read_text("utf-8"):
            edit("README.md", _CLONE, f"Clone {repository}", "no address")
        edit(
            "pyproject.toml", r"^\[project\.scripts\]$", f"{urls}\n[project.scripts]", "no scripts"
        )
    for name, text in texts.items():
        (source / name).write_text(text, "utf-8")
    return list(texts)


def addresses(repository: str) -> str:
    """Return the table of addresses that package indexes show."""
    url = repository.removesuffix(".git").rstrip("/")
    return (
        f'[project.urls]\nRepository = "{url}"\nDocumentation = "{url}/tree/main/docs"\n'
        f'Changelog = "{url}/blob/main/CHANGELOG.md"\nIssues = "{url}/issues"\n'
    )


def with_addresses(source: Path, version: str) -> None:
    """Let the links of README lead to the repository: package indexes show it by itself."""
    table = tomllib.loads((source / "pyproject.toml").read_text("utf-8"))
    url = table["project"]["urls"]["Repository"]
    readme = source / "README.md"
    text = re.sub(
        r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)",
        lambda link: (
            f"{link[1]}[{link[2]}]({url}/{'raw' if link[1] else 'blob'}/v{version}/{link[3]})"
        ),
        readme.read_text("utf-8"),
    )
    readme.write_text(text, "utf-8")


def pythons(source: Path) -> list[str]:
    """Return interpreters of the lowest and the newest Python that pyproject.toml names.

    Raises:
        ReleaseError: One of them is not installed.
    """
    table = tomllib.loads((source / "pyproject.toml").read_text("utf-8"))
    found = re.findall(r":: (3\.\d+)'", str(table["project"]["classifiers"]))
    named = sorted(found, key=lambda version: int(version.partition(".")[2]))
    return [_python(named[0]), _python(named[-1])]


def _python(version: str) -> str:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [f"python{version}", *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]
    for candidate in candidates:
        path = shutil.which(candidate)
        if (
            path
            and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0
        ):
            return path
    raise ReleaseError(f"Python {version} is not installed, and a release is tried on it")


def _files() -> list[str]:
    """Return the files of the checkout that git has or would take."""
    listed = _output("git", "ls-files", "--cached", "--others", "--exclude-standard")
    return [name for name in listed.splitlines() if (ROOT / name).is_file()]


def _check_checkout(version: str) -> None:
    """Refuse to release what is in no commit, or twice.

    Raises:
        ReleaseError: The checkout has changes, or the tag exists.
    """
    changes = _output("git", "status", "--porcelain")
    if changes:
        raise ReleaseError(f"the checkout has changes: {changes.splitlines()[0].strip()}")
    if _output("git", "tag", "--list", f"v{version}"):
        raise ReleaseError(f"there is a tag v{version}")


def _output(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _run(command: Sequence[str | Path], folder: Path, *, quiet: bool = False) -> None:
    """Run a command outside the checkout, with its output on the terminal; if quiet, if it fails.

    Raises:
        ReleaseError: It failed.
    """
    words = [str(word) for word in command]
    print(f"== {' '.join(words)}", flush=True)
    environ = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        words,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        check=False,
    )
    if done.returncode:
        print((done.stdout or b"").decode(errors="replace"))
        raise ReleaseError(f"failed with {done.returncode}: {' '.join(words)}")


def _environment(python: str, folder: Path, *packages: str) -> Path:
    """Return the folder of the commands of a new environment with packages."""
    where = Path(tempfile.mkdtemp(prefix="venv-", dir=folder))
    _run([python, "-m", "venv", where], folder)
    commands = where / ("Scripts" if sys.platform == "win32" else "bin")
    _run([commands / "python", "-m", "pip", "install", "--quiet", *packages], folder)
    return commands


def _built(source: Path, folder: Path) -> tuple[Path, Path]:
    """Return the sdist, and the wheel that is built from it, which twine has found good."""
    commands = _environment(sys.executable, folder, "build", "twine")
    build = [commands / "python", "-m", "build", "--outdir", folder / "dist", source]
    _run(build, folder, quiet=True)
    made = sorted((folder / "dist").iterdir())
    _run([commands / "twine", "check", "--strict", *made], folder)
    [sdist], [wheel] = ([p for p in made if p.name.endswith(end)] for end in (".tar.gz", ".whl"))
    return sdist, wheel


def _try_wheel(python: str, wheel: Path, source: Path, folder: Path) -> None:
    """Install a wheel into an empty environment, and use it as its users will."""
    commands = _environment(python, folder, f"{wheel}[cpu]")
    empty = Path(tempfile.mkdtemp(prefix="empty-", dir=folder))
    shutil.copy2(source / "tools" / "smoke_test.py", empty)
    _run([commands / "python", "smoke_test.py"], empty)
    _run([commands / "amp-rewrite", "demo", "--folder", "."], empty)
    _run([commands / "amp-rewrite", "check-lists"], empty)


def _try_sdist(python: str, sdist: Path, folder: Path) -> None:
    """Install an sdist, and run tests that are in it."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "sdist", **UNPACKED)
    [unpacked] = (folder / "sdist").iterdir()
    commands = _environment(python, folder, f"{unpacked}[cpu]", *TEST_PACKAGES)
    _run([commands / "python", "-P", "-m", "pytest", "-q", *SELF_TESTS], unpacked)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
