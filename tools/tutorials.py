"""Runs the notebooks of docs/tutorials and keeps what they show: `make tutorials`.

    python -m tools.tutorials           runs all of them, about three minutes
    python -m tools.tutorials NAME …    runs some, such as will_it_grok

Kept are texts, tables and pictures; times and numbers of executions, which differ every time, are
not. A notebook whose outputs are larger than `MAX_BYTES` is refused.
"""

import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "tutorials"
MAX_BYTES = 200_000
_SECONDS = 600
#: What of an output is kept.
_KINDS = ("text/plain", "text/html", "image/png")


def run(file: Path) -> NotebookNode:
    """The notebook with what its cells show now, run in the folder of the repository.

    Raises:
      nbclient.exceptions.CellExecutionError: a cell failed.
    """
    notebook = nbformat.read(file, as_version=4)
    NotebookClient(
        notebook,
        timeout=_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(ROOT)}},
        # A kernel warns that others on this machine could listen.
        extra_arguments=["--log-level=ERROR"],
    ).execute()
    return tidy(notebook)


def tidy(notebook: NotebookNode) -> NotebookNode:
    """The notebook without what differs from run to run and from machine to machine."""
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    )
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        cell.execution_count = None
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k == "alt"})
        # Warnings and progress are no results.
        cell.outputs = _joined([o for o in cell.outputs if o.get("name") != "stderr"])
        for output in cell.outputs:
            if "data" in output:
                output.metadata = nbformat.from_dict({})
                output.data = {k: v for k, v in output.data.items() if k in _KINDS}
                if "execution_count" in output:
                    output.execution_count = None
    return notebook


def _cpu_seconds() -> float:
    """Of the kernels that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _joined(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """What is printed comes in pieces, whose sizes are chance: as one."""
    found: list[NotebookNode] = []
    for output in outputs:
        if found and output.output_type == found[-1].output_type == "stream":
            found[-1].text += output.text
        else:
            found.append(output)
    return found


def main(names: Sequence[str]) -> int:
    """Runs notebooks and writes them back; the exit status."""
    files = [FOLDER / f"{name}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb"))
    for file in files:
        started, before = time.monotonic(), _cpu_seconds()
        notebook = run(file)
        text = nbformat.writes(notebook) + "\n"
        if len(text) > MAX_BYTES:
            print(f"{file.name} has {len(text)} bytes, more than {MAX_BYTES}; show less")
            return 1
        file.write_text(text, "utf-8")
        took = f"{time.monotonic() - started:.0f} s, {_cpu_seconds() - before:.0f} CPU s"
        print(f"{file.name}: {took}, {len(text) // 1024} KiB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
