"""Links on the site: one that leaves docs/ for a file of the tree becomes the file's name.

Pages are read on the site and as files of the repository. A link such as
[the reader](../../jaxsens/data/registry.py) works in the second place only; on the site it reads
"the reader (`jaxsens/data/registry.py`)". Files in `ALSO` are pages of the site too, and links to
them stay links. A hook of mkdocs, named in mkdocs.yml. A link to a file that does not exist is left
alone, and fails the build.
"""

import os
import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:\s]+)(#[^)]*)?\)")
#: Pages of the site that are written elsewhere, by their file in the tree.
ALSO = {"benchmarks/README.md": "results/benchmarks.md"}


def on_files(files: Any, *, config: Any, **_: Any) -> Any:
    """Called by mkdocs once, with all pages."""
    from mkdocs.structure.files import File  # `make docs` installs mkdocs; the rest does without

    docs = Path(config.docs_dir)
    for source, place in ALSO.items():
        text = (docs.parent / source).read_text("utf-8")
        up = os.path.relpath(docs, (docs / place).parent)
        files.append(File.generated(config, place, content=text.replace("](../docs/", f"]({up}/")))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Called by mkdocs for every page."""
    docs = Path(config.docs_dir)
    sources = {place: docs.parent / source for source, place in ALSO.items()}
    here = docs / page.file.src_uri
    return inside_only(markdown, sources.get(page.file.src_uri, here).parent, docs, here.parent)


def inside_only(markdown: str, folder: Path, docs: Path, place: Path | None = None) -> str:
    """The page with links to files outside `docs` replaced by their names.

    Args:
      markdown: the page.
      folder: the folder that its links start from.
      docs: the folder of all pages.
      place: the folder of the page on the site, if it is another one.

    >>> here = Path(__file__).parent
    >>> inside_only("see [links](../tools/site_links.py)", here, here.parent / "docs")
    'see links (`tools/site_links.py`)'
    """
    root = docs.parent.resolve()

    def replaced(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(root) and (also := ALSO.get(target.relative_to(root).as_posix())):
            return f"[{link[1]}]({os.path.relpath(docs / also, place or folder)}{link[3] or ''})"
        inside = target.is_relative_to(docs.resolve())
        if inside or not target.exists() or not target.is_relative_to(root):
            return link[0]
        name = target.relative_to(root).as_posix()
        return f"`{name}`" if link[1].strip("`") == name else f"{link[1]} (`{name}`)"

    return _LINK.sub(replaced, markdown)
