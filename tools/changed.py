"""Which tests a change calls for: those of what was changed, and of what imports it directly.

In a package of many floors nearly all stands on the lowest ones, so that whatever could be touched
by a change there is the whole suite. What is chosen here is one arrow wide: the test files of the
changed modules' folders, and of each module, and each test file, that imports a changed module
itself. Modules that reach it through others, and the corpus, are left out, and said to be.
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = "amp_rewrite"
ALWAYS = ("tests/conformance/test_painting_cases.py", "tests/structure/test_floors.py")
"""What any change of the package may break, and what takes half a minute."""

MANY = 40
"""More test files than these, of direct importers, are left out: all stands on such a module."""

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([\w., \t]+))",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Choice:
    """What to run for a change.

    Attributes:
        tests: Test files and folders, and single tests, as pytest takes them.
        left_out: What the change may touch and is not tested, in words.
    """

    tests: list[str] = field(default_factory=list[str])
    left_out: list[str] = field(default_factory=list[str])


def changed_files(root: Path, base: str | None) -> list[str]:
    """Return what differs from a revision: commits since then, what is not committed, new files.

    Args:
        root: The top of the checkout.
        base: The revision; None for where this branch left origin/main, or main without one, or
            the last commit.
    """
    left = (_git(root, "merge-base", name, "HEAD") for name in ("origin/main", "main"))
    since = base or next(filter(None, left), "HEAD")
    listed = _git(root, "diff", "--name-only", since, "--")
    if listed is None:
        raise SystemExit(f"git finds nothing to compare with at {since}: name one with --base")
    new = _git(root, "ls-files", "--others", "--exclude-standard") or ""
    return sorted({*listed.splitlines(), *new.splitlines()})


def _git(root: Path, *words: str) -> str | None:
    """Return what git prints, or None if it fails."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


class Imports:
    """Who imports what, in the package and its tests; paths are relative to the checkout."""

    def __init__(self, root: Path) -> None:
        """Read all files: 0.3 s for 1,100 of them."""
        self.root = root
        self.modules = {_module(path): path for path in _files(root, PACKAGE)}
        self.helpers = {Path(path).stem: path for path in _files(root, "tests/support")}
        self.importers: dict[str, set[str]] = defaultdict(set)
        for path in (*self.modules.values(), *_files(root, "tests")):
            for found in self._imported((root / path).read_text("utf-8")):
                self.importers[found].add(path)

    def _imported(self, text: str) -> Iterator[str]:
        for origin, names, plain in _IMPORT.findall(text):
            for name in re.findall(r"[\w.]+", plain):
                yield from self._file_of(name)
            for name in re.findall(r"\w+", names) if origin else ():
                yield from self._file_of(f"{origin}.{name}") or self._file_of(origin)

    def _file_of(self, name: str) -> list[str]:
        found = self.modules.get(name) or self.helpers.get(name.partition(".")[0])
        return [found] if found else []

    def of(self, path: str) -> set[str]:
        """Return the files that import one themselves; a package's face passes its names on."""
        found: set[str] = set()
        for importer in self.importers[path]:
            if importer.endswith("/__init__.py") and importer != f"{PACKAGE}/__init__.py":
                found |= self.importers[importer]
            found.add(importer)
        return found - {path}

    def above(self, paths: Iterable[str]) -> set[str]:
        """Return the files that reach some of the given ones, through whatever others."""
        found: set[str] = set()
        waiting = list(paths)
        while waiting:
            new = self.importers[waiting.pop()] - found
            found |= new
            waiting += new
        return found


def choose(root: Path, files: list[str]) -> Choice:
    """Return what to run where the given files have changed."""
    imports = Imports(root)
    tests: dict[str, None] = {}
    left_out: list[str] = []
    modules = [path for path in files if path.startswith(f"{PACKAGE}/") and path.endswith(".py")]
    for path in files:
        tests.update(dict.fromkeys(own_tests(root, path)))
        if path.startswith("tests/support/"):
            users = imports.above([path])
            tests.update(dict.fromkeys(sorted(user for user in users if _is_test(user))))
    if modules:
        tests.update(dict.fromkeys(ALWAYS))
        near = _tests_of_importers(imports, modules)
        if len(near) > MANY:
            own = sorted({folder for path in modules if (folder := _folder(root, path))})
            left_out.append(f"{len(near)} test files of what imports it directly (but {own})")
        else:
            tests.update(dict.fromkeys(near))
        far = imports.above(modules) - {
            *modules,
            *(m for path in modules for m in imports.of(path)),
        }
        rooms = sorted({_room(path) for path in far if path.startswith(f"{PACKAGE}/")})
        left_out += [f"what reaches it through others: {', '.join(rooms)}"] if rooms else []
        left_out.append("the corpus and the documentation's examples")
    present = [test for test in tests if (root / test.partition("::")[0]).exists()]
    folders = [test for test in present if (root / test).is_dir()]
    return Choice([t for t in present if not any(_inside(t, f) for f in folders)], left_out)


def own_tests(root: Path, path: str) -> list[str]:
    """Return the tests that stand for a file by its place."""
    if _is_test(path):
        return [path]
    if path.startswith("tests/") and Path(path).name == "conftest.py":
        return [str(Path(path).parent)]
    top, _, rest = path.partition("/")
    if top == PACKAGE:
        folder = _folder(root, path)
        mirrored = f"tests/test_{rest}" if "/" not in rest else None
        return [found for found in (folder, mirrored) if found]
    if top == "lists":
        return ["tests/oplists"]
    if path.endswith(".md"):
        page = f"tests/docs/test_docs.py::test_the_blocks_of_a_page_run[{path}]"
        return ["tests/docs/test_links.py", "tests/docs/test_facts.py", page]
    if top in ("tools", "benchmarks", "examples"):
        return [f"tests/{top}/test_{Path(path).stem}.py"]
    return ["tests/structure"] if path == "pyproject.toml" else []


def _folder(root: Path, path: str) -> str | None:
    """Return the folder of a module's tests, the innermost that there is."""
    for folder in Path("tests", *Path(path).parts[1:]).parents:
        if folder == Path("tests"):
            return None
        if (root / folder).is_dir():
            return str(folder)
    return None


def _tests_of_importers(imports: Imports, modules: list[str]) -> list[str]:
    """Return the test files of what imports modules: their own name, or the tests that do."""
    found: set[str] = set()
    for importer in {i for path in modules for i in imports.of(path)}:
        if _is_test(importer):
            found.add(importer)
        elif importer.startswith(f"{PACKAGE}/"):
            inside = Path(*Path(importer).parts[1:])
            test = Path("tests") / inside.with_name(f"test_{inside.name}")
            found |= {str(test)} if (imports.root / test).exists() else set()
    return sorted(found - {path for path in found if path.startswith("tests/corpus/")})


def _files(root: Path, folder: str) -> list[str]:
    return [path.relative_to(root).as_posix() for path in sorted((root / folder).rglob("*.py"))]


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _room(path: str) -> str:
    return Path(path).parts[1].removesuffix(".py")


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and Path(path).name.startswith("test_") and path[-3:] == ".py"


def _inside(test: str, folder: str) -> bool:
    return test.startswith(f"{folder}/")
