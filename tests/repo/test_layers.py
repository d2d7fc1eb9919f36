"""Who may import whom: lower layers never import higher ones, plugins use the public door only."""

import ast
import functools
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLATFORM = ROOT / "platform"
FIRST_PARTY = sorted(
    p.name for top in ("plugins", "backends") for p in (ROOT / top).iterdir() if (p / "__init__.py").exists()
)

#: Layer of each part of tenon, lowest first; a part may import its own layer and those below.
LAYERS = [
    {"errors", "config", "dtypes", "device", "random", "plugins"},
    {"core"},
    {"ops"},
    {"graph", "functions", "fft", "linalg", "special", "backends", "cuda", "amp", "cpu", "multiprocessing"},
    {"nn", "optim", "distributed", "observe", "serialize", "data", "autograd", "func", "utils"},
    {"training", "testing", "compress", "prune", "quantization"},
    {"cli", "extend"},
]
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}
#: What plugins and backends may import of tenon: the authors' door, ops, the test kit, torch's public names.
PUBLIC = {
    "tenon.extend",
    "tenon.ops",
    "tenon.testing",
    "tenon",
    "tenon.nn",
    "tenon.data",
    "tenon.optim",
    "tenon.errors",
}
#: Third-party packages and the only places that may import them.
CONFINED = {
    "cupy": ("backends/tenon_cuda", "plugins/tenon_nccl"),
    "mpi4py": ("plugins/tenon_mpi",),
    "tensorboardX": ("plugins/tenon_tensorboard",),
    "numba": ("backends/tenon_cpu", "plugins/tenon_mpi"),
    "safetensors": (),  # tests compare with it; ADR 0007
}


@functools.cache
def imports(path):
    """(module, line, is inside a function or TYPE_CHECKING) of every import in a file."""
    return list(_imports(path))


def _imports(path):
    tree = ast.parse(path.read_text())
    late = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        ):
            late.update(id(inner) for inner in ast.walk(node))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) in late
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            if node.module == "tenon":
                for alias in node.names:
                    yield f"tenon.{alias.name}", node.lineno, id(node) in late
            else:
                yield node.module, node.lineno, id(node) in late


TENON = sorted((PLATFORM / "tenon").rglob("*.py"))
EXTENSIONS = sorted(p for top in ("plugins", "backends") for p in (ROOT / top).rglob("*.py"))


def part_of(path):
    relative = path.relative_to(PLATFORM / "tenon")
    return relative.parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", TENON, ids=lambda p: str(p.relative_to(PLATFORM)))
def test_lower_layers_do_not_import_higher_ones(path):
    own = LEVEL.get(part_of(path))
    if own is None:  # the package's own __init__, py.typed faces
        return

    wrong = [
        f"line {line}: {module}"
        for module, line, late in imports(path)
        if not late and module.startswith("tenon.") and LEVEL.get(module.split(".")[1], 0) > own
    ]

    assert wrong == []


@pytest.mark.parametrize("path", TENON, ids=lambda p: str(p.relative_to(PLATFORM)))
def test_the_platform_names_no_plugin_package(path):
    assert [m for m, _, _ in imports(path) if m.split(".")[0] in FIRST_PARTY] == []


@pytest.mark.parametrize("path", EXTENSIONS, ids=lambda p: str(p.relative_to(ROOT)))
def test_plugins_use_the_public_door_only(path):
    own = path.relative_to(ROOT).parts[1]

    wrong = [
        f"line {line}: {module}"
        for module, line, _ in imports(path)
        if module.split(".")[0] in {"tenon", *FIRST_PARTY}
        and module.split(".")[0] != own
        and not any(module == door or (door != "tenon" and module.startswith(door + ".")) for door in PUBLIC)
        and not (
            module.startswith("tenon.")
            and module.count(".") == 1
            and not (PLATFORM / "tenon" / module[6:]).exists()
            and not (PLATFORM / "tenon" / f"{module[6:]}.py").exists()
        )
    ]

    assert wrong == []


@pytest.mark.parametrize("path", TENON + EXTENSIONS, ids=lambda p: str(p.relative_to(ROOT)))
def test_heavy_libraries_stay_where_they_belong(path):
    place = str(path.relative_to(ROOT))

    wrong = [
        module
        for module, _, _ in imports(path)
        if (homes := CONFINED.get(module.split(".")[0])) is not None and not place.startswith(homes)
    ]

    assert wrong == []


def test_one_file_alone_reads_the_environment():
    reading = [
        str(path.relative_to(ROOT))
        for path in TENON + EXTENSIONS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in ("environ", "getenv")
        and _named(node.value) == "os"
    ]

    assert set(reading) == {"platform/tenon/config.py"}


def _named(node):
    return node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize("path", sorted((PLATFORM / "tenon" / "ops").rglob("*.py")), ids=lambda p: p.name)
def test_gradient_rules_read_only_f_and_attrs(path):
    wrong = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("vjp_"):
            names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            attributes = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
            wrong += [
                f"{node.name} line {node.lineno}: {n}" for n in names & {"np", "xp", "numpy", "isinstance"}
            ]
            wrong += [f"{node.name} line {node.lineno}: .{a}" for a in attributes & {"raw", "data"}]

    assert wrong == []
