"""Layers of the library: each layer imports only lower layers."""

import ast
from pathlib import Path

import memes

SOURCE = Path(memes.__file__).parent
# Each layer may import only earlier layers. Modules that are not listed belong to the core.
ORDER = (
    *("errors", "kernels", "physics", "core", "tasks", "store", "runner", "analysis", "api"),
    *("view", "options", "reproduce", "commands"),
)
# These modules may import all layers.
ENTRY_POINTS = ("memes.__init__", "memes.__main__")


def layer(module):
    """Return the layer of the module `memes.x.y`.

    The package `memes` itself belongs to the last layer.
    """
    name = (*module.split("."), ORDER[-1])[1]
    return name if name in ORDER else "core"


def imports():
    """Yield the module, line and target of every import within the library."""
    for file in SOURCE.rglob("*.py"):
        module = ".".join(("memes", *file.relative_to(SOURCE).with_suffix("").parts))
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "memes":
                targets = [f"memes.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                targets = [node.module]
            else:
                targets = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for target in targets:
                if target == "memes" or (target or "").startswith("memes."):
                    yield module, node.lineno, target


def test_no_module_imports_upwards():
    found = list(imports())
    assert len(found) > 300
    upwards = [
        f"{module}:{line} imports {target}"
        for module, line, target in found
        if module not in ENTRY_POINTS and ORDER.index(layer(target)) > ORDER.index(layer(module))
    ]
    assert upwards == []


def test_the_top_level_has_at_most_twenty_modules():
    assert len({file.stem for file in SOURCE.glob("*.py")} - {"__init__", "__main__"}) <= 20


def test_no_two_public_classes_have_the_same_name():
    trees = (ast.parse(file.read_text()) for file in SOURCE.rglob("*.py"))
    classes = [node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    assert sorted({name for name in classes if classes.count(name) > 1 and name[0] != "_"}) == []


def test_only_physics_imports_mujoco_at_module_level():
    """MuJoCo belongs to the extra `robots`. All other modules work without MuJoCo."""
    importing = {file for file in SOURCE.rglob("*.py") if "\nimport mujoco" in file.read_text()}
    assert {file.parent.name for file in importing} == {"physics"}


def test_physics_imports_only_kernels_and_errors():
    others = {layer(target) for module, _, target in imports() if layer(module) == "physics"}
    assert others == {"physics", "kernels", "errors"}


def test_the_core_does_not_query_the_device():
    """Results must not depend on the device. Only `lax.platform_dependent` chooses implementations."""
    files = [
        file
        for file in SOURCE.rglob("*.py")
        if layer(f"memes.{file.relative_to(SOURCE).parts[0]}") == "core"
    ]
    assert len(files) > 40
    assert [file.name for file in files if "default_backend" in file.read_text()] == []
