"""Links on the site: one that leaves docs/ for a file of the tree becomes the file's name.

Pages are read on the site and as files of the repository. A link such as
[the reader](../../jaxsens/data/registry.py) works in the second place only; on the site it reads
"the reader (`jaxsens/data/registry.py`)". A hook of mkdocs, named in mkdocs.yml. A link to a file
that does not exist is left alone, and fails the build.
"""

import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Called by mkdocs for every page."""
    return inside_only(markdown, Path(page.file.abs_src_path).parent, Path(config.docs_dir))


def inside_only(markdown: str, folder: Path, docs: Path) -> str:
    """The page with links to files outside `docs` replaced by their names.

    Args:
      markdown: the page.
      folder: the folder that its links start from.
      docs: the folder of all pages.

    >>> here = Path(__file__).parent
    >>> inside_only("see [links](../tools/site_links.py)", here, here.parent / "docs")
    'see links (`tools/site_links.py`)'
    """
    root = docs.parent.resolve()

    def replaced(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        inside = target.is_relative_to(docs.resolve())
        if inside or not target.exists() or not target.is_relative_to(root):
            return link[0]
        name = target.relative_to(root).as_posix()
        return f"`{name}`" if link[1].strip("`") == name else f"{link[1]} (`{name}`)"

    return _LINK.sub(replaced, markdown)
