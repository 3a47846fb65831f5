"""A release: what is written into the copy of the checkout, and what stands in its way.

Environments, builds and twine are tried by `tools/release.py --rehearse`, which .ci/run calls.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import release
from releases import needs

ROOT = Path(__file__).parents[2]
URL = "https://example.org/owner/amp_rewrite"
EDITED = (
    *("CHANGELOG.md", "README.md", "pyproject.toml"),
    *("amp_rewrite/base/version.py", "docs/op_lists.md"),
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a copy of the files that a release changes."""
    for name in EDITED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_version_date_and_addresses_are_written_where_they_belong(source: Path) -> None:
    changed = release.prepare(source, "0.3.0rc1", f"{URL}.git", "2027-01-02")
    assert sorted(changed) == sorted(EDITED)
    headings = re.findall(r"^## .*", (source / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == "## [0.3.0rc1] - 2027-01-02"
    assert '__version__ = "0.3.0rc1"\n' in (source / EDITED[3]).read_text("utf-8")
    assert "    rev: v0.3.0rc1\n" in (source / "docs/op_lists.md").read_text("utf-8")
    project = tomllib.loads((source / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["urls"]["Repository"] == URL
    assert project["urls"]["Issues"] == f"{URL}/issues"
    assert project["scripts"] == {"amp-rewrite": "amp_rewrite.cli:main"}
    readme = (source / "README.md").read_text("utf-8")
    assert f"Clone {URL}.git." in readme
    assert "pip install 'amp-rewrite[cpu]'`.\n" in readme


def test_the_second_release_knows_the_address(source: Path) -> None:
    release.prepare(source, "0.3.0", URL, "2027-01-02")
    with pytest.raises(release.ReleaseError, match=r"CHANGELOG\.md: no section is unreleased"):
        release.prepare(source, "0.4.0", None, "2027-02-02")
    log = (source / "CHANGELOG.md").read_text("utf-8")
    (source / "CHANGELOG.md").write_text(f"## [Unreleased] - unreleased\n\n- More.\n{log}", "utf-8")
    changed = release.prepare(source, "0.4.0", None, "2027-02-02")
    assert sorted(changed) == ["CHANGELOG.md", "amp_rewrite/base/version.py", "docs/op_lists.md"]


def test_the_first_release_has_to_know_the_address(source: Path) -> None:
    before = {name: (source / name).read_bytes() for name in EDITED}
    with pytest.raises(release.ReleaseError, match="name --repository URL"):
        release.prepare(source, "0.3.0", None, "2027-01-02")
    assert {name: (source / name).read_bytes() for name in EDITED} == before


def test_links_of_the_readme_that_an_index_shows_lead_to_the_repository(source: Path) -> None:
    release.prepare(source, "0.3.0", URL, "2027-01-02")
    release.with_addresses(source, "0.3.0")
    targets = re.findall(r"\]\(([^)]+)\)", (source / "README.md").read_text("utf-8"))
    assert len(targets) > 20
    for target in targets:
        found = re.fullmatch(rf"{URL}/(?:blob|raw)/v0\.3\.0/([^#]+)(?:#.*)?", target)
        assert found is not None, target
        assert (ROOT / found[1]).exists()


@pytest.mark.parametrize("version", ["1", "0.3", "v0.3.0", "0.3.0-beta", ""])
def test_what_is_no_version_is_refused(
    version: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert release.main([version, "--rehearse", "--output", str(tmp_path / "dist")]) == 1
    assert "release: not a version" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_metadata_are_complete() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert len(project["keywords"]) == len(set(project["keywords"])) > 10
    assert {"description", "readme", "license", "classifiers", "requires-python"} <= set(project)
    named = [c for c in project["classifiers"] if c.startswith("Programming Language")]
    assert project["requires-python"] == f">={named[0].rpartition(' ')[2]}"


@pytest.mark.slow
def test_the_sdist_has_what_tests_it(tmp_path: Path) -> None:
    """Setuptools makes it, without an environment; what it tests itself with is in it."""
    copy = tmp_path / "source"
    ignored = shutil.ignore_patterns("__pycache__", ".git", "*.egg-info", "node_modules", ".cache")
    shutil.copytree(ROOT, copy, ignore=ignored)
    code = "import build_backend; print(build_backend.build_sdist('.'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=copy,
        env={"PYTHONPATH": str(copy / "tools"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    if "No module named 'setuptools'" in done.stderr:
        pytest.skip("setuptools is not installed")
    needs("setuptools", (77, 0), "cannot read pyproject.toml, which asks for it")
    assert done.returncode == 0, done.stderr
    shutil.unpack_archive(copy / done.stdout.splitlines()[-1], tmp_path, **release.UNPACKED)
    [inside] = tmp_path.glob("amp_rewrite-*")
    for name in (*release.SELF_TESTS, "tests/support/handmade.py", "lists/float16_cuda.yaml"):
        assert (inside / name).exists(), name
    assert not (inside / "lists" / "compiled").exists()
