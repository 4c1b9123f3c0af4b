"""Notebooks on the site: docs/**/*.ipynb become pages, with the outputs that they hold.

A hook of mkdocs, named in mkdocs.yml. Nothing is run here: `make tutorials` runs the notebooks and
keeps their outputs, and a test runs them again. Pictures go into the page itself. What a code cell
shows as a picture is described by the `alt` of its metadata.
"""

import json
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files


class NotebookFile(File):
    """A notebook, which mkdocs shall take for a page."""

    def is_documentation_page(self) -> bool:
        """True."""
        return True

    @property
    def name(self) -> str:  # type: ignore[override]
        """The file's name without its ending."""
        return Path(self.src_uri).stem

    @property
    def dest_uri(self) -> str:  # type: ignore[override]
        """The page."""
        return self.src_uri.removesuffix(".ipynb") + ".html"


def on_files(files: Files, *, config: Any) -> Files:
    """Called by mkdocs with all files of docs/."""
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            files.remove(file)
            found = (config.docs_dir, config.site_dir, config.use_directory_urls)
            files.append(NotebookFile(file.src_uri, *found))
    return files


def on_page_read_source(*, page: Any, **_: Any) -> str | None:
    """Called by mkdocs for every page; None for those that it reads itself."""
    if not page.file.src_uri.endswith(".ipynb"):
        return None
    notebook = json.loads(Path(page.file.abs_src_path).read_text("utf-8"))
    return markdown_of(notebook, f"docs/{page.file.src_uri}")


def markdown_of(notebook: dict[str, Any], name: str) -> str:
    r"""A notebook as Markdown; its name stands below the heading.

    >>> cells = [
    ...     {"cell_type": "markdown", "source": ["# Title\n", "\n", "Text."]},
    ...     {
    ...         "cell_type": "code",
    ...         "source": ["%matplotlib inline\n", "1 + 1"],
    ...         "metadata": {},
    ...         "outputs": [{"output_type": "execute_result", "data": {"text/plain": ["2"]}}],
    ...     },
    ... ]
    >>> print(markdown_of({"cells": cells}, "a.ipynb"))
    # Title
    <BLANKLINE>
    *This page is the notebook `a.ipynb`.*
    <BLANKLINE>
    Text.
    <BLANKLINE>
    ```python
    1 + 1
    ```
    <BLANKLINE>
    ```text
    2
    ```
    """
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = _text(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        shown = "\n".join(line for line in source.split("\n") if not line.startswith("%"))
        parts.append(f"```python\n{shown.strip()}\n```")
        alt = cell["metadata"].get("alt", "")
        parts += [_output(output, alt) for output in cell["outputs"]]
    head, _, rest = parts[0].partition("\n")
    parts[:1] = [head, f"*This page is the notebook `{name}`.*", rest.strip()]
    return "\n\n".join(filter(None, parts))


def _output(output: dict[str, Any], alt: str) -> str:
    """What a cell gave, as Markdown."""
    if output["output_type"] == "stream":
        return _fenced(_text(output["text"]))
    found = output["data"]
    if "image/png" in found:
        data = "".join(_text(found["image/png"]).split())
        return f'<img alt="{alt}" src="data:image/png;base64,{data}">'
    if "text/html" in found:
        # Without empty lines, at which Markdown would take the rest for its own.
        lines = _text(found["text/html"]).split("\n")
        return "\n".join(line for line in lines if line.strip())
    return _fenced(_text(found["text/plain"]))


def _fenced(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"


def _text(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)
