"""Links of all pages lead to files and headings."""

import re

import pytest

from tests.docs.blocks import ROOT

PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / name for name in ("experiments/README.md", "benchmarks/README.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
]
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(text):
    """The page without its code, in which brackets mean something else."""
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "code", text)


def headings(text):
    """The anchors of a page, as mkdocs and GitHub make them of its headings."""
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        bare = re.sub(r"[^\w\s-]", "", title.strip().lower())
        yield re.sub(r"\s+", "-", bare)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    text = page.read_text("utf-8")
    for link in _LINK.findall(prose(text)):
        if re.match(r"https?://", link):
            continue
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{link}: there is no {target}"
        assert file.is_relative_to(ROOT), link
        if anchor:
            assert anchor in set(headings(file.read_text("utf-8"))), f"{link}: no such heading"


def test_broken_links_would_be_found():
    assert set(headings("# One `two`, three\n```\n# no\n```\n")) == {"one-two-three"}
    assert _LINK.findall(prose("[a](b.md) `[c](d.md)`")) == ["b.md"]
