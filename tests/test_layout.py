"""What a machine can keep of the project's rules: who imports whom, what the core may not do, sizes, mirrors.

Each list of exceptions may only shrink: an exception that is not needed any more fails too.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULE_LINES, FUNCTION_LINES, POSITIONAL = 450, 60, 3

FLOOR = (
    "proxy.errors",
    *(f"proxy.core.{name}" for name in ("arguments", "calls", "history", "jsontext", "jsonvalues")),
)
CONFIGURATION = tuple(
    f"proxy.{name}"
    for name in (
        *("argumentreads", "checking", "config", "configfile", "policyfiles", "reachability", "settings", "spellings"),
        "toolconfig",
    )
)
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    # The longest prefix that fits a module decides. Everybody may import the floor and the package's version.
    **dict.fromkeys(FLOOR, ()),
    "proxy.core.protocol": ("proxy.core.protocol",),
    "proxy.core.policy": ("proxy.core.policy",),
    "proxy.core.batch": ("proxy.core.batch",),
    "proxy.core": ("proxy.core",),
    "proxy.yamlfile": (),
    "proxy.metrics": (),
    "proxy.stores": ("proxy.stores",),
    "proxy.tools": ("proxy.tools",),
    **dict.fromkeys(
        CONFIGURATION, (*CONFIGURATION, "proxy.yamlfile", "proxy.core.policy", "proxy.stores", "proxy.tools")
    ),
    "proxy.middleware": (),
    "proxy.demo": ("proxy.demo",),
    "proxy.demo_tools": (),
    "proxy.server": (
        *CONFIGURATION,
        "proxy.core",
        "proxy.metrics",
        "proxy.middleware",
        "proxy.server",
        "proxy.stores",
        "proxy.tools",
        "proxy.yamlfile",
    ),
    "proxy.authoring": (*CONFIGURATION, "proxy.authoring", "proxy.core", "proxy.yamlfile"),
    "proxy.injector": ("proxy.config", "proxy.configfile", "proxy.injector", "proxy.server.logs", "proxy.yamlfile"),
    "proxy.commands": (
        *CONFIGURATION,
        "proxy.authoring",
        "proxy.commands",
        "proxy.core",
        "proxy.injector",
        "proxy.server.logs",
    ),
    "proxy.cli": ("proxy",),
    "proxy.__main__": ("proxy.cli",),
}
BANNED_IN_CORE = re.compile(
    r"(aiohttp|asyncio|datetime|http|io|logging|os|pathlib|random|secrets|socket|sqlite3|subprocess|threading|time|uuid)\b"
)
PYDANTIC_IN = "proxy.core.policy"

# A task that nobody holds and awaits is lost: these modules own the tasks that they make.
TASK_OWNERS = {"proxy.server.tasks", "proxy.server.pumping", "proxy.server.waiting"}
# A task group awaits what it makes.
TASK_MAKERS = re.compile(r"\b(?!group\b)\w+(\(\))?\.(create_task|ensure_future)\(|^\s*ensure_future\(")

# Modules whose lines have a test module of another name, or need none.
WITHOUT_MIRROR: set[str] = {
    "proxy.__main__",
    "proxy.stores.base",
}
LATE_IMPORTS: set[str] = {"proxy.stores", "proxy.tools.mcp"}
LONG_MODULES: set[str] = set()
LONG_FUNCTIONS: set[str] = set()
MANY_PARAMETERS: set[str] = {
    "proxy.core.jsontext._changed",
    "proxy.core.jsontext._edited",
    "proxy.core.jsontext._rebuilt",
    "proxy.core.policy.rewriting._edited",
    "proxy.core.protocol.assembly._text",
    "proxy.server.app._admin_plane",
    "proxy.server.listeners.handle_error",
}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in sorted((ROOT / "proxy").rglob("*.py"))}
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


def below(name: str, *prefixes: str) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def imports(name: str) -> Iterator[str]:
    """What a module imports, with full names; of `from package import module` the module."""
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: imports are absolute"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else str(node.module)


def functions(name: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{name}.{node.name}", node


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    names = [name for name in listed.stdout.decode().split("\0") if name]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def layer(name: str) -> tuple[str, ...]:
    fitting = [prefix for prefix in MAY_IMPORT if below(name, prefix)]
    assert fitting, f"{name} has no place in MAY_IMPORT"
    return MAY_IMPORT[max(fitting, key=len)]


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_down(name: str) -> None:
    """A module imports its own layer and those below it, never another part of its own height."""
    if name in {"proxy", "proxy.core"}:
        return
    inside = {found for found in imports(name) if below(found, "proxy")} - {"proxy"}
    wrong = {found for found in inside if not below(found, *FLOOR, *layer(name))}
    # `from proxy.core import jsontext` names the folder when what it takes is a module: that counts as the module.
    assert not wrong, f"{name} may not import {sorted(wrong)}"


def test_there_are_no_cycles() -> None:
    """No module comes back to itself by what it imports."""
    todo = {name: {found for found in imports(name) if found in MODULES} - {name} for name in MODULES}
    while free := [name for name, needs in todo.items() if not needs & todo.keys()]:
        for name in free:
            del todo[name]
    assert not todo, f"these import each other in a circle: {sorted(todo)}"


@pytest.mark.parametrize("name", [name for name in MODULES if below(name, "proxy.core")])
def test_the_core_is_pure(name: str) -> None:
    """The core does no I/O, reads no clock, draws no random numbers; pydantic is for policies alone."""
    found = {other for other in imports(name) if BANNED_IN_CORE.match(other)}
    if not below(name, PYDANTIC_IN):
        found |= {other for other in imports(name) if below(other, "pydantic")}
    assert not found


def test_only_main_imports_the_command_line() -> None:
    """The command line is the outermost layer."""
    assert {name for name in MODULES if any(below(f, "proxy.cli") for f in imports(name))} <= {"proxy.__main__"}


def test_imports_stand_at_the_top() -> None:
    """No function imports anything, save for optional drivers."""
    late = {
        name
        for name in MODULES
        for _, function in functions(name)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert sorted(late) == sorted(LATE_IMPORTS)


def test_every_task_has_an_owner() -> None:
    """Tasks are made by those who hold, name and await them."""
    makers = {
        name
        for name, path in MODULES.items()
        for line in path.read_text().splitlines()
        if TASK_MAKERS.search(line.split("#")[0])
    }
    assert sorted(makers) == sorted(TASK_OWNERS)


def test_every_module_says_what_it_is_for() -> None:
    """A module that holds code opens with a docstring."""
    assert not [name for name, tree in TREES.items() if tree.body and not ast.get_docstring(tree)]


def test_every_module_has_its_tests() -> None:
    """tests/ mirrors proxy/: `test_x.py` for `x.py`, `test_init.py` for an `__init__.py` that holds code."""
    without = set()
    for name, path in MODULES.items():
        stem = "init" if path.name == "__init__.py" else path.stem
        mirror = ROOT / "tests" / path.relative_to(ROOT / "proxy").parent / f"test_{stem}.py"
        holds_code = any(not isinstance(node, ast.Expr | ast.Assign) for node in TREES[name].body)
        if holds_code and not mirror.exists():
            without.add(name)
    assert sorted(without) == sorted(WITHOUT_MIRROR)


def test_every_folder_of_tests_is_a_package() -> None:
    """Test modules of different folders may have one name."""
    folders = {path.parent for path in (ROOT / "tests").rglob("*.py")}
    assert not [str(folder) for folder in folders if not (folder / "__init__.py").exists()]


def test_modules_are_short() -> None:
    """A module that grows beyond the limit is split."""
    long = {name for name, path in MODULES.items() if len(path.read_text().splitlines()) > MODULE_LINES}
    assert sorted(long) == sorted(LONG_MODULES)


def test_functions_are_short() -> None:
    """A function that grows beyond the limit is split."""
    long = {
        name
        for module in MODULES
        for name, node in functions(module)
        if (node.end_lineno or node.lineno) - node.lineno + 1 > FUNCTION_LINES
    }
    assert sorted(long) == sorted(LONG_FUNCTIONS)


def test_functions_have_few_positional_parameters() -> None:
    """What comes fourth is given by its name."""
    many = set()
    for module in MODULES:
        for name, node in functions(module):
            given = [a.arg for a in (*node.args.posonlyargs, *node.args.args) if a.arg not in {"self", "cls"}]
            if len(given) > POSITIONAL:
                many.add(name)
    assert sorted(many) == sorted(MANY_PARAMETERS)


def test_no_file_names_a_machine() -> None:
    """Nothing that is kept names a folder of the machine that it was written on, or depends on one."""
    marks = re.compile("|".join(["/" + folder + "/[a-z]" for folder in ("work", "farm", "root")]))
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked()
        if path.suffix != ".lock"
        for number, line in enumerate(path.read_bytes().decode("utf-8", "replace").splitlines(), 1)
        if marks.search(line)
    ]
    assert not found


def test_every_ready_policy_has_its_cases() -> None:
    """policies/CATEGORY/NAME/ holds a policy of that name, which begins with a verb, and its cases."""
    folders = {path.parent for path in (ROOT / "policies").rglob("*.yaml")}
    assert folders
    for folder in folders:
        assert {path.name for path in folder.iterdir()} == {"policy.yaml", "cases.yaml"}, folder.name
        assert len(folder.relative_to(ROOT / "policies").parts) == 2
        for path in folder.iterdir():
            assert re.search(rf"^  name: {folder.name}$", path.read_text(), re.MULTILINE), path
