"""What the release check finds wrong."""

import io
import tarfile
import zipfile

import pytest

from tests.docs.blocks import ROOT
from tests.docs.test_site import tool

release = tool("release_check")


def tree(folder, version="1.2.3", citation="1.2.3", heading="[1.2.3] - 2030-01-01"):
    (folder / "jaxsens").mkdir()
    (folder / "jaxsens" / "__init__.py").write_text(f'__version__ = "{version}"\n')
    (folder / "CITATION.cff").write_text(f"title: x\nversion: {citation}\n")
    (folder / "CHANGELOG.md").write_text(f"# Changelog\n\n## {heading}\n")
    return folder


def test_the_versions_of_this_tree_agree():
    assert [*release.version_problems(ROOT)] == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"citation": "1.2"}, ["CITATION.cff does not have version: 1.2.3"]),
        ({"heading": "[Unreleased]"}, []),
        ({"heading": "[1.2.2]"}, ["CHANGELOG.md has no heading ## [1.2.3]; it has 1.2.2"]),
        (
            {"heading": "News"},
            ["CHANGELOG.md has no heading ## [Unreleased] and none of a version"],
        ),
    ],
)
def test_versions_that_differ_are_named(tmp_path, changes, expected):
    assert [*release.version_problems(tree(tmp_path, **changes))] == expected


def test_files_that_are_missing_or_differ_are_named(tmp_path):
    wheel, sdist = tmp_path / "jaxsens-1-py3-none-any.whl", tmp_path / "jaxsens-1.tar.gz"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("jaxsens/__init__.py", "new")
        archive.writestr("jaxsens/experiments/a.py", "same")
        archive.writestr("jaxsens/reporting/report.html.jinja", "same")
    contents = dict.fromkeys(("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"), "same")
    contents |= {"jaxsens/__init__.py": "old", "experiments/a.py": "same"}
    contents |= {"jaxsens/reporting/report.html.jinja": "same"}
    with tarfile.open(sdist, "w:gz") as archive:
        for name, text in contents.items():
            member = tarfile.TarInfo(f"jaxsens-1/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    assert [*release.package_problems(wheel, sdist)] == [
        "jaxsens-1.tar.gz lacks CONTRIBUTING.md",
        "jaxsens/__init__.py of the wheel is not jaxsens/__init__.py of the sdist",
    ]
