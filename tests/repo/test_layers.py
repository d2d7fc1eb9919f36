"""Who may import whom: lower layers never import higher ones, plugins use the public door only."""

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLATFORM = ROOT / "platform"
FIRST_PARTY = sorted(
    p.name for top in ("plugins", "backends") for p in (ROOT / top).iterdir() if (p / "__init__.py").exists()
)

#: Layer of each part of tenon, lowest first; a part may import its own layer and those below.
LAYERS = [
    {"errors", "config", "dtypes", "device", "random", "plugins"},
    {"engine", "tensors"},
    {"ops"},
    {"graph", "functions", "fft", "linalg", "special", "backends", "cuda", "amp", "cpu"},
    {"nn", "optim", "distributed", "observe", "serialize", "data", "autograd", "func", "utils",
     "multiprocessing"},
    {"training", "testing"},
    {"cli", "extend"},
]  # fmt: skip
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
    "tenon.autograd",
    "tenon.special",
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
    return list(_imports(ast.parse(path.read_text()), False))


def _imports(node, late):
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, node.lineno, late
    elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
        if node.module == "tenon":
            for alias in node.names:
                yield f"tenon.{alias.name}", node.lineno, late
        else:
            yield node.module, node.lineno, late
    late = late or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    late = late or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
    for statements in ("body", "orelse", "handlers", "finalbody", "cases"):  # no import lies in an expression
        for inner in getattr(node, statements, ()):
            yield from _imports(inner, late)


TENON = sorted((PLATFORM / "tenon").rglob("*.py"))
EXTENSIONS = sorted(p for top in ("plugins", "backends") for p in (ROOT / top).rglob("*.py"))


def part_of(path):
    relative = path.relative_to(PLATFORM / "tenon")
    return relative.parts[0].removesuffix(".py")


def found_in(paths, wrong):
    """``{file: what is wrong there}``; one test for all files, as a test of each takes longer than its work."""
    return {str(path.relative_to(ROOT)): found for path in paths if (found := wrong(path))}


def test_lower_layers_do_not_import_higher_ones():
    def wrong(path):
        own = LEVEL.get(part_of(path), len(LAYERS))  # the package's own __init__, py.typed faces: all
        return [
            f"line {line}: {module}"
            for module, line, late in imports(path)
            if not late and module.startswith("tenon.") and LEVEL.get(module.split(".")[1], 0) > own
        ]

    assert found_in(TENON, wrong) == {}


def test_the_platform_names_no_plugin_package():
    def wrong(path):
        return [module for module, _, _ in imports(path) if module.split(".")[0] in FIRST_PARTY]

    assert found_in(TENON, wrong) == {}


def test_plugins_use_the_public_door_only():
    def wrong(path):
        own = path.relative_to(ROOT).parts[1]
        return [
            f"line {line}: {module}"
            for module, line, _ in imports(path)
            if module.split(".")[0] in {"tenon", *FIRST_PARTY}
            and module.split(".")[0] != own
            and not any(
                module == door or (door != "tenon" and module.startswith(door + ".")) for door in PUBLIC
            )
            and not (
                module.startswith("tenon.")
                and module.count(".") == 1
                and not (PLATFORM / "tenon" / module[6:]).exists()
                and not (PLATFORM / "tenon" / f"{module[6:]}.py").exists()
            )
        ]

    assert found_in(EXTENSIONS, wrong) == {}


def test_heavy_libraries_stay_where_they_belong():
    def wrong(path):
        place = str(path.relative_to(ROOT))
        return [
            module
            for module, _, _ in imports(path)
            if (homes := CONFINED.get(module.split(".")[0])) is not None and not place.startswith(homes)
        ]

    assert found_in(TENON + EXTENSIONS, wrong) == {}


def test_one_file_alone_reads_the_environment():
    def wrong(path):
        text = path.read_text()
        return [
            node.lineno
            for node in (ast.walk(ast.parse(text)) if "environ" in text or "getenv" in text else ())
            if isinstance(node, ast.Attribute)
            and node.attr in ("environ", "getenv")
            and isinstance(node.value, ast.Name)
            and node.value.id == "os"
        ]

    assert found_in(TENON + EXTENSIONS, wrong).keys() == {"platform/tenon/config.py"}


def test_gradient_rules_read_only_f_and_attrs():
    def wrong(path):
        text, found = path.read_text(), []
        for node in ast.walk(ast.parse(text)) if "def vjp_" in text else ():
            if isinstance(node, ast.FunctionDef) and node.name.startswith("vjp_"):
                names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                attributes = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
                told = f"{node.name} line {node.lineno}: "
                found += [told + n for n in names & {"np", "xp", "numpy", "isinstance"}]
                found += [f"{told}.{a}" for a in attributes & {"raw", "data"}]
        return found

    assert found_in(sorted((PLATFORM / "tenon" / "ops").rglob("*.py")), wrong) == {}
