"""The runs in a folder: pages of runs, and nothing else on the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from run_pages import made_up

from amp_rewrite.errors import OptionError
from amp_rewrite.loop.run_page.run_document import render
from amp_rewrite.loop.run_page.run_folder import MOST_RUNS, RunFolder
from amp_rewrite.rewriting.report.write_text import write_text


def put(path: Path, title: str, **other: float) -> Path:
    write_text(path, render({"runs": [made_up(title, **other)], "source": None}))  # pyright: ignore[reportArgumentType]
    return path


def titles(folder: RunFolder) -> list[str]:
    return [run["title"] for run in folder.runs()]


def test_every_page_in_the_folder_is_a_run_in_the_order_of_their_names(tmp_path: Path) -> None:
    put(tmp_path / "b.html", "second")
    put(tmp_path / "a.html", "first")
    folder = RunFolder(tmp_path)
    assert titles(folder) == ["first", "second"]
    assert [run["file"] for run in folder.runs()] == ["a.html", "b.html"]


def test_as_long_as_nothing_changes_the_runs_are_one_object(tmp_path: Path) -> None:
    page = put(tmp_path / "a.html", "first")
    folder = RunFolder(tmp_path)
    runs = folder.runs()
    assert folder.runs() is runs
    put(page, "other")
    assert titles(folder) == ["other"]
    page.unlink()
    assert titles(folder) == []
    put(page, "again")
    assert titles(folder) == ["again"]


def test_nothing_outside_of_the_folder_is_read(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    (inside / "folder.html").mkdir(parents=True)
    put(outside / "secret.html", "secret")
    put(inside / "folder.html" / "deep.html", "deep")
    put(inside / "a.html", "own")
    (inside / "link.html").symlink_to(outside / "secret.html")
    (inside / "up.html").symlink_to("../outside/secret.html")
    (inside / "all.html").symlink_to(outside)
    (inside / "own.html").symlink_to("a.html")
    assert titles(RunFolder(inside)) == ["own"]


def test_a_link_that_takes_the_place_of_a_file_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    secret = put(tmp_path / "secret.html", "secret")
    page = put(inside / "a.html", "own")
    open_ = os.open

    def swapped(path: Path, flags: int) -> int:
        page.unlink()
        page.symlink_to(secret)
        return open_(path, flags)

    monkeypatch.setattr(os, "open", swapped)
    assert titles(RunFolder(inside)) == []


def test_other_files_are_no_runs(tmp_path: Path) -> None:
    put(tmp_path / "a.html", "run")
    put(tmp_path / "a.txt", "text")
    (tmp_path / "b.html").write_text("<html><script>alert(1)</script></html>")
    (tmp_path / "c.html").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "d.html").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe.html")
    with (tmp_path / "huge.html").open("wb") as file:
        file.truncate(2**24 + 1)
    assert titles(RunFolder(tmp_path)) == ["run"]


def test_of_many_runs_the_latest_are_there(tmp_path: Path) -> None:
    for number in range(MOST_RUNS + 2):
        put(tmp_path / f"{number:02}.html", f"run {number}", written=1e9 - number)
    assert titles(RunFolder(tmp_path)) == [f"run {number}" for number in range(MOST_RUNS)]


def test_a_folder_that_is_not_there_is_an_error_and_one_that_goes_is_empty(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no folder of runs"):
        RunFolder(tmp_path / "no")
    folder = tmp_path / "runs"
    folder.mkdir()
    runs = RunFolder(folder)
    folder.rmdir()
    assert titles(runs) == []
