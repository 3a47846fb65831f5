"""Which tests notice a mutant: the process forks for each, so that imports are paid once.

In a process that has collected the tests, `Trials`, a plugin of pytest, first runs them all and
notes which lines each of them runs. Then a fork for each mutant puts the changed functions in the
place of those that are loaded, and runs the tests that come past, to the first that fails. That is
what the mutant does only where the changed lines had not run while modules were imported; for all
others a process that has imported neither the package nor the tests yet loads the changed file.
"""

from __future__ import annotations

import gc
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pickle
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeVar

import pytest
from code_changes import changed_code, compiled, put_into
from mutants import Mutant

T = TypeVar("T")
Line = tuple[str, int]

KILLED, SURVIVED, UNREACHED = "killed", "survived", "no test comes past"
_FILES = 8
"""Test files that a process which starts anew collects at most."""


@dataclass(slots=True)
class Trace:
    """What tests run of the traced files.

    Attributes:
        imported: Lines that run while modules are imported and tests are collected.
        lines: Those of each test that passed, by its node id.
        seconds: Processor time of each.
    """

    imported: set[Line] = field(default_factory=set[Line])
    lines: dict[str, set[Line]] = field(default_factory=dict[str, set[Line]])
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def tests_of(self, mutant: Mutant, path: str, seconds: float) -> list[str]:
        """Return the tests that come past a mutant: first those of its own file, then fast ones.

        Args:
            mutant: Where it is; a test that does not run its lines may still read what they make
                on import.
            path: Its file, as frames name it.
            seconds: Processor time that the tests may take together; one is always returned.
        """
        places = {(path, line) for line in range(mutant.lines[0], mutant.lines[1] + 1)}
        if places & self.imported:
            near = {test: len(lines) for test, lines in self.lines.items() if lines}
        else:
            near = {test: 1 for test, lines in self.lines.items() if places & lines}
        own = f"/test_{Path(mutant.path).name}::"
        order = sorted(near, key=lambda test: (own not in test, self.seconds[test]))
        chosen: list[str] = []
        for test in order:
            seconds -= self.seconds[test] + 0.01
            if chosen and seconds < 0:
                break
            chosen.append(test)
        return chosen


class Trials:
    """The plugin of a process that has collected tests.

    Attributes:
        results: What became of each mutant; None for those that have to be loaded anew.
        trace: What the tests run.
    """

    def __init__(self, files: Iterable[str], mutants: Sequence[Mutant], root: Path, seconds: float):
        """Take the mutants, and the files that are traced, as frames name them."""
        self.files, self.mutants = frozenset(files), mutants
        self.root, self.seconds = root, seconds
        self.trace = Trace()
        self.results: list[str | None] = []
        self._lines = self.trace.imported
        self._has_failed = False

    def begin(self) -> None:
        """Note what runs from now on."""
        sys.settrace(self._enter)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._note if frame.f_code.co_filename in self.files else None

    def _note(self, frame: FrameType, event: str, argument: Any) -> Any:
        self._lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._note

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Say why tests cannot be collected."""
        if report.failed:
            print(report.longreprtext)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note failures."""
        self._has_failed |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Trace the tests in a fork, then try each mutant in one; run nothing here."""
        for mutant in self.mutants:  # some are loaded when they are first used, which is too late
            import_module(mutant.path[:-3].removesuffix("/__init__").replace("/", "."))
        sys.settrace(None)
        items = {item.nodeid: item for item in session.items}
        imported = self.trace.imported
        self.trace = answer_of_fork(lambda: self._traced(items.values())) or Trace()
        self.trace.imported = imported
        gc.unfreeze()  # functions are found among all objects
        functions = [
            found
            for found in gc.get_objects()
            if isinstance(found, FunctionType) and found.__code__.co_filename in self.files
        ]
        for mutant in self.mutants:
            path = str(self.root / mutant.path)
            tests = self.trace.tests_of(mutant, path, self.seconds)
            changes = changed_code(Path(path).read_text("utf-8"), mutant.source, path)
            if changes is None or self.trace.imported & {(path, n) for n in _range(mutant)}:
                self.results.append(None)
            elif not tests:
                self.results.append(UNREACHED)
            else:
                chosen = [items[test] for test in tests]
                self.results.append(
                    _outcome(lambda c=changes, t=chosen: put_into(functions, c) or self._run(t))
                )
        return True

    def _traced(self, items: Iterable[pytest.Item]) -> Trace:
        """Run tests; return what those run that pass."""
        trace = Trace()
        for item in items:
            self._lines, self._has_failed = set(), False
            start = time.process_time()
            sys.settrace(self._enter)  # some tests set a trace of their own
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            sys.settrace(None)
            if not self._has_failed:
                trace.lines[item.nodeid] = self._lines
                trace.seconds[item.nodeid] = time.process_time() - start
        return trace

    def _run(self, items: Sequence[pytest.Item]) -> bool:
        """Return whether a test fails."""
        self._has_failed = False
        limit_time(self.seconds)
        return any(
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            and self._has_failed
            for item, following in zip(items, [*items[1:], None], strict=True)
        )


def try_anew(mutant: Mutant, path: str, trace: Trace, seconds: float) -> str:
    """Return what becomes of a mutant that is loaded in place of the file.

    To be called in a process that has not imported the package.

    Args:
        mutant: The mutant.
        path: Its file, as frames name it.
        trace: What the tests run.
        seconds: Processor time of the tests, without their import.
    """
    tests = trace.tests_of(mutant, path, seconds)
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))[:_FILES]
    chosen = {test for test in tests if test.partition("::")[0] in files}
    if not chosen:
        return UNREACHED

    class Chosen:
        def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
            items[:] = [item for item in items if item.nodeid in chosen]

    def load() -> bool:
        sys.meta_path.insert(0, _Finder(path, mutant.source))
        limit_time(seconds + 60)
        return pytest.main(["-x", *ARGUMENTS, *files], plugins=[Chosen()]) != 0

    return _outcome(load)


ARGUMENTS = ("-p", "no:terminal", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow")


class _Finder(importlib.abc.MetaPathFinder):
    """Loads one file from another text."""

    def __init__(self, path: str, source: str) -> None:
        self._path, self._source = path, source

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """Return the spec of the changed module, None for any other."""
        if fullname.rpartition(".")[2] not in (Path(self._path).stem, Path(self._path).parent.name):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin != self._path:
            return None
        loader = _Loader(fullname, self._path)
        loader.source = self._source
        return importlib.util.spec_from_file_location(
            fullname,
            self._path,
            loader=loader,
            submodule_search_locations=spec.submodule_search_locations,
        )


class _Loader(importlib.machinery.SourceFileLoader):
    """A loader that is handed the source."""

    source = ""

    def get_code(self, fullname: str) -> CodeType:
        """Compile the changed source."""
        return compiled(self.source, self.path)


def _range(mutant: Mutant) -> range:
    return range(mutant.lines[0], mutant.lines[1] + 1)


def _outcome(is_noticed: Callable[[], bool]) -> str:
    """Return what a trial in a fork says; what ends the process or its time is noticed."""
    return SURVIVED if answer_of_fork(is_noticed) is False else KILLED


def limit_time(seconds: float) -> None:
    """End this process when it has taken twice this processor time, and ten seconds, from now."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    most = int(usage.ru_utime + usage.ru_stime + 2 * seconds + 10)
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + 5))


def answer_of_fork(call: Callable[[], T], patience: float = 1200.0, loud: bool = False) -> T | None:
    """Return what a call returns in a fork of this process, which prints nothing unless it is loud.

    None if the fork dies, or does not answer in as many seconds as patience says.
    """
    with tempfile.NamedTemporaryFile() as file:
        child = os.fork()
        if child == 0:
            try:
                if not loud:
                    for stream in (1, 2):
                        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
                answer = call()
                Path(file.name).write_bytes(pickle.dumps(answer))
            except BaseException:  # noqa: BLE001 the fork ends here, whatever ended the call
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)
        end = time.monotonic() + patience
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if time.monotonic() > end:
                os.kill(child, 9)
            time.sleep(0.01)
        answer = Path(file.name).read_bytes()
    return pickle.loads(answer) if answer else None
