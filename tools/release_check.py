"""What a release must pass: `python -m tools.release_check` (make release-check).

Builds wheel and sdist into dist/, installs the wheel with its dependencies, and the extras that the
README's examples import, into a new virtual environment in a temporary folder, and runs these
examples and `--exp list` there, outside the checkout. The sdist must give the same package as the
wheel. The version must be the same everywhere. One line for each thing that is wrong; exit status 1
if there is any.

Assumption: pip can reach an index, or a cache, with the dependencies.
"""

import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def version_of(root: Path) -> str:
    """The version that the package gives itself."""
    text = (root / "jaxsens" / "__init__.py").read_text("utf-8")
    found = re.search(r'^__version__ = "(.*)"$', text, re.MULTILINE)
    if found is None:
        raise ValueError("jaxsens/__init__.py has no __version__")
    return found[1]


def version_problems(root: Path) -> Iterator[str]:
    """Where another version is named than the package gives itself."""
    version = version_of(root)
    citation = (root / "CITATION.cff").read_text("utf-8")
    if not re.search(rf"^version: {re.escape(version)}$", citation, re.MULTILINE):
        yield f"CITATION.cff does not have version: {version}"
    log = (root / "CHANGELOG.md").read_text("utf-8")
    heads = re.findall(r"^## \[(.*?)\]", log, re.MULTILINE)
    if not heads:
        yield "CHANGELOG.md has no heading ## [Unreleased] and none of a version"
    elif version not in heads and (heads != ["Unreleased"]):
        yield f"CHANGELOG.md has no heading ## [{version}]; it has {', '.join(heads)}"


def build(root: Path, folder: Path) -> tuple[Path, Path]:
    """Builds wheel and sdist, in isolation from what is installed here."""
    _run([sys.executable, "-m", "build", "--outdir", str(folder), str(root)], root)
    version = version_of(root)
    return folder / f"jaxsens-{version}-py3-none-any.whl", folder / f"jaxsens-{version}.tar.gz"


def package_problems(wheel: Path, sdist: Path) -> Iterator[str]:
    """Files that are missing, or differ between wheel and sdist."""
    with zipfile.ZipFile(wheel) as archive:
        inside = {n: archive.read(n) for n in archive.namelist() if n.startswith("jaxsens/")}
    with tarfile.open(sdist) as archive:
        stem = sdist.name.removesuffix(".tar.gz")
        outside = {}
        for member in archive.getmembers():
            if (file := archive.extractfile(member)) is not None:
                outside[member.name.removeprefix(f"{stem}/")] = file.read()
    for name in ("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md"):
        if name not in outside:
            yield f"{sdist.name} lacks {name}"
    for name in ("jaxsens/__init__.py", "jaxsens/reporting/report.html.jinja"):
        if name not in inside:
            yield f"{wheel.name} lacks {name}"
    for name, content in inside.items():
        # In a wheel the experiments stand inside the package.
        source = name.removeprefix("jaxsens/") if name.startswith("jaxsens/experiments/") else name
        if outside.get(source) != content:
            yield f"{name} of the wheel is not {source} of the sdist"


def installed_problems(wheel: Path, readme: str, folder: Path) -> Iterator[str]:
    """What fails in a new virtual environment, outside the checkout."""
    _run([sys.executable, "-m", "venv", str(folder / "venv")], folder)
    python = str(folder / "venv" / "bin" / "python")
    blocks = _BLOCK.findall(readme)
    extras = ",".join(extras_of(blocks))
    _run([python, "-m", "pip", "install", "--quiet", f"{wheel}[{extras}]"], folder)
    version = wheel.name.split("-")[1]
    said = _run([python, "-c", "import jaxsens; print(jaxsens.__version__)"], folder).strip()
    if said != version:
        yield f"the installed package says version {said}, the wheel {version}"
    if "vision" not in _run([python, "-m", "jaxsens.run", "--exp", "list"], folder):
        yield "the installed package does not list its experiments"
    if not blocks:
        yield "README.md has no example"
    for number, block in enumerate(blocks, 1):
        try:
            printed = _run([python, "-c", block], folder).strip()
        except CommandError as error:
            yield f"example {number} of README.md: {error}"
            continue
        promised = re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)
        if _words(printed) != _words("\n".join(promised)):
            yield f"example {number} of README.md prints {printed!r}"


def extras_of(blocks: Sequence[str]) -> list[str]:
    """The extras whose packages are imported.

    >>> extras_of(["import jax, torch", "import jaxsens.torch"])
    ['torch']
    """
    lines = [line for block in blocks for line in re.findall(r"^import (.+)$", block, re.MULTILINE)]
    imported = {name.split()[0] for line in lines for name in line.split(",")}
    return [name for name in ("torch", "equinox", "keras", "haiku") if name in imported]


def _words(text: str) -> str:
    """The text without measured digits, of which another machine may round the last."""
    return re.sub(r"\d\.\d+", "#", text)


class CommandError(Exception):
    """A command failed; the message has its last line."""


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["without a word"]
        raise CommandError(f"{' '.join(command)[:100]} fails: {lines[-1]}")
    return done.stdout


def main() -> int:
    """Runs all checks and prints what is wrong."""
    problems = [*version_problems(ROOT)]
    with tempfile.TemporaryDirectory(prefix="jaxsens-release-") as name:
        try:
            wheel, sdist = build(ROOT, ROOT / "dist")
            print(f"built {wheel.name} and {sdist.name}", flush=True)
            problems += package_problems(wheel, sdist)
            print("installing the wheel into a new virtual environment", flush=True)
            readme = (ROOT / "README.md").read_text("utf-8")
            problems += installed_problems(wheel, readme, Path(name))
        except (CommandError, OSError, ValueError) as error:
            problems.append(str(error))
    for problem in problems:
        print(f"WRONG  {problem}")
    print("nothing is wrong" if not problems else f"{len(problems)} things are wrong")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
