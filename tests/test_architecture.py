"""The order of the rooms: a room imports only from rooms before it, and from itself."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Rooms on one line do not know each other.
ORDER = (
    {"__version__"},
    {"core"},
    {"perturbations", "data", "boolean"},
    {"text", "incremental"},
    {"models", "measurement", "corruptions"},
    {"training", "spectrum", "adapters"},
    {"reporting", "figures"},
    {"cli"},
    {"sweeps", "measuring"},
    {"run", "record", "sweep", "gallery"},
    {"measure"},
)
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}


def imported(source):
    """(line, dotted name) of everything that a module imports by absolute names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def breaks_of(file, source):
    """The imports of a library file that break the order, as "file:line: what"."""
    mine = Path(file).parts[1].removesuffix(".py")
    for line, name in imported(source):
        top, _, rest = f"{name}.".partition(".")
        room = rest.partition(".")[0]
        if top in ("experiments", "tests", "benchmarks"):
            yield f"{file}:{line}: the library imports {name}"
        elif top == "jaxsens" and room != mine and LEVEL.get(room, len(ORDER)) >= LEVEL[mine]:
            yield f"{file}:{line}: {mine} imports {name}, which does not come before it"


def test_rooms_import_only_from_rooms_before_them():
    files = [file.relative_to(ROOT) for file in sorted((ROOT / "jaxsens").rglob("*.py"))]
    files.remove(Path("jaxsens/__init__.py"))
    assert len(files) > 100
    found = [each for file in files for each in breaks_of(file, (ROOT / file).read_text("utf-8"))]
    assert not found, "\n".join(found)


def test_a_break_is_found_with_file_and_line():
    (found,) = breaks_of("jaxsens/data/x.py", "import jax\nfrom jaxsens.models.vit import ViT")
    assert found.startswith("jaxsens/data/x.py:2: data imports jaxsens.models.vit.ViT")
    assert [*breaks_of("jaxsens/run.py", "import experiments.vision")]
    assert [*breaks_of("jaxsens/core/x.py", "from jaxsens import sensitivity")]
    assert not [*breaks_of("jaxsens/core/x.py", "from jaxsens import __version__")]


def collisions_of(package, source, siblings):
    """The names a package's __init__.py gives to something else than its module of that name."""
    for node in ast.parse(source).body:
        names: list[str] = []
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.ImportFrom):
            own = node.module == package or (node.level == 1 and node.module is None)
            names = [] if own else [alias.asname or alias.name for alias in node.names]
        for name in siblings & set(names):
            yield f"{package}: line {node.lineno}: {name} is not the module {package}.{name}"


def test_no_function_has_the_name_of_a_module_beside_it():
    found: list[str] = []
    tops = [ROOT / top for top in ("jaxsens", "experiments", "benchmarks")]
    for folder in [file.parent for top in tops for file in top.rglob("__init__.py")]:
        source = (folder / "__init__.py").read_text("utf-8")
        siblings = {f.stem for f in folder.glob("*.py")} | {f.name for f in folder.iterdir()}
        package = ".".join(folder.relative_to(ROOT).parts)
        found += collisions_of(package, source, siblings - {"__init__"})
    assert not found, "\n".join(found)


def test_a_shared_name_is_found():
    source = "from jaxsens.a.b import b\nfrom jaxsens.a import c\ndef d(): ..."
    (first, second) = collisions_of("jaxsens.a", source, {"b", "c", "d"})
    assert first == "jaxsens.a: line 1: b is not the module jaxsens.a.b"
    assert second.startswith("jaxsens.a: line 3: d")


def test_experiments_share_only_what_is_common():
    for file in (ROOT / "experiments").glob("*/*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == 2:
                shared = (node.module or node.names[0].name).partition(".")[0]
                assert shared.startswith("_"), f"{file.relative_to(ROOT)}:{node.lineno}: {shared}"
