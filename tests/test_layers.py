"""The layers of the library: imports point one way."""

import ast
from pathlib import Path

import memes

SOURCE = Path(memes.__file__).parent
# Each may import those before it. The core is everything that is not listed.
ORDER = (
    *("errors", "kernels", "physics", "core", "tasks", "store", "runner", "analysis", "api"),
    *("view", "options", "reproduce", "commands"),
)
# These may import all layers.
ENTRY_POINTS = ("memes.__init__", "memes.__main__")


def layer(module):
    """The layer of `memes.x.y`."""
    name = module.split(".")[1]
    return name if name in ORDER else "core"


def imports():
    """The module, line and target of every import of this library within it."""
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
                if target and target.startswith("memes."):
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


def test_only_physics_imports_mujoco_before_it_is_asked_for():
    """It comes with the extra robots; all else does without."""
    importing = {file for file in SOURCE.rglob("*.py") if "\nimport mujoco" in file.read_text()}
    assert {file.parent.name for file in importing} == {"physics"}


def test_physics_imports_only_kernels_and_errors():
    others = {layer(target) for module, _, target in imports() if layer(module) == "physics"}
    assert others == {"physics", "kernels", "errors"}


def test_the_core_does_not_ask_which_device_there_is():
    """What it computes must not depend on that; `lax.platform_dependent` chooses how."""
    files = [
        file
        for file in SOURCE.rglob("*.py")
        if layer(f"memes.{file.relative_to(SOURCE).parts[0]}") == "core"
    ]
    assert len(files) > 40
    assert [file.name for file in files if "default_backend" in file.read_text()] == []
