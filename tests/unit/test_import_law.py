"""The import law: who may know whom, and what starts without a heavy import. Read from the sources.

The law is the table below. A new top-level module needs a line in it; a line that has to be widened
is a decision about the design and belongs into the commit's message.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_LINES = 400

PLAIN = {"errors", "options", "results", "paths"}
COUNTED = {"engine.geometry", "engine.buckets", "engine.weight_formats"}
"""What the engine and the memory model compute by the same formulas: no torch in there."""
PARTS = {"documents", "reuse", "memory", "outputs", "journal", "report", "checkpoint", "reading"}
LAW: dict[str, set[str]] = {
    "": {"api", "results"},
    "version": set(),
    "errors": set(),
    "results": {"errors"},
    "processors": set(),
    "options": {"errors"},
    "paths": set(),
    "report": PLAIN,
    "loops": PLAIN,
    "answers": PLAIN,
    "recipes": PLAIN,
    "hub": PLAIN,
    "checkpoint": {*PLAIN, "hub"},
    "catalogue": {*PLAIN, "hub", "checkpoint", "engine", "memory"},
    "kernels": {"errors"},
    "engine": {"kernels", "errors"},
    "documents": PLAIN,
    "reuse": {*PLAIN, "documents"},
    "memory": {*PLAIN, "processors", "checkpoint", "hub", "documents", *COUNTED},
    "outputs": {*PLAIN, "documents"},
    "journal": {*PLAIN, "outputs"},
    "reading": {*PLAIN, "documents"},
    "answering": {*PLAIN, "reading", "markup"},
    "desk": {"reading"},
    "recipe": {*PLAIN, "checkpoint", "journal", "reuse"},
    "chat": {*PLAIN, "documents"},
    "readers": {
        *(*PLAIN, "processors", "reading", "chat", "checkpoint", "loops"),
        *("engine", "documents", "memory", "answers", "answering"),
    },
    "remote": {
        *(*PLAIN, "reading", "answering", "checkpoint", "loops", "engine.models.prompts"),
    },
    "nano": set(),
    "markup": set(),
    "cluster": {
        *(*PLAIN, "processors", "reading", "checkpoint", "memory", "desk", "recipe", "readers"),
    },
    "doctor": {*PLAIN, "report"},
    "evaluation": {*PLAIN, "documents"},
    "pipeline": {
        *(*PLAIN, *PARTS, "readers", "remote", "loops", "processors", "desk", "recipe", "cluster"),
    },
    "serve": {*PLAIN, *PARTS, "chat", "pipeline", "readers"},
    "bench": {*PLAIN, *PARTS, "processors", "pipeline", "readers", "engine", "kernels", "loops"},
    "cli": {
        *(*PLAIN, *PARTS, "pipeline", "bench", "doctor", "processors"),
        *("hub", "catalogue", "evaluation", "recipes", "answers", "cluster.address", "serve"),
    },
    "api": {*PLAIN, "pipeline", "report"},
    "__main__": {"cli"},
}
"""Component → the components that it may import besides itself and `version`."""

MEMBERS = dict.fromkeys(
    (
        *("pipeline", "job", "assemble", "ordering", "openings", "admission", "ledger", "listing"),
        *("intake", "meter", "repeats", "workers", "page_worker", "transfer", "fitness"),
        *("finished", "output_checks"),
    ),
    "pipeline",
) | {"rapidocr": "checkpoint", "joining": "reading", "strip": "results"}
"""Modules that make up one component under another name."""

THIRD_PARTY = {
    "torch": {"engine", "kernels", "readers", "bench"},
    "triton": {"kernels"},
    "pikepdf": {"outputs"},
    "pillow_heif": {"documents"},
    "huggingface_hub": {"hub"},
    "transformers": {"bench", "readers"},
    "tokenizers": {"engine"},
    "safetensors": {"engine", "checkpoint", "memory"},
    "jsonschema": {"answers"},
    "referencing": {"answers"},
    "pymupdf": {"documents", "outputs", "bench"},
    "rapidocr": {"readers"},
    "onnxruntime": set(),
    "typer": {"cli"},
    "rich": {"cli"},
    "ray": {"cluster"},
    "httpx2": {"remote"},
    "fastapi": {"serve"},
    "starlette": {"serve"},
    "uvicorn": {"serve"},
    "prometheus_client": {"serve"},
}
"""Library → the only components that may import it, at any place in a file."""


@dataclass(frozen=True)
class Import:
    """One imported module; `is_lazy` inside a function, `is_typing` under TYPE_CHECKING."""

    source: str
    target: str
    line: int
    is_lazy: bool
    is_typing: bool

    def __str__(self) -> str:
        return f"{self.source}:{self.line} imports {self.target}"


@cache
def modules() -> dict[str, Path]:
    """All modules of the package by dotted name; packages by the name of the package."""
    found = {}
    for path in sorted((ROOT / "vlmcli").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(name: str) -> Iterator[Import]:
    """What a module imports, wherever in the file."""
    tree = ast.parse(modules()[name].read_text(encoding="utf-8"))

    def walk(node: ast.AST, is_lazy: bool, is_typing: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            lazy = is_lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            typing = is_typing or (
                isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")
            )
            for target in targets(child):
                yield Import(name, target, child.lineno, lazy, typing)
            yield from walk(child, lazy, typing)

    yield from walk(tree, False, False)


def targets(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0 and node.module, "relative imports hide who is meant"
        inner = [f"{node.module}.{alias.name}" for alias in node.names]
        return [found if found in modules() else node.module for found in inner]
    return []


@cache
def all_imports() -> tuple[Import, ...]:
    return tuple(found for name in modules() for found in imports_of(name))


def is_own(name: str) -> bool:
    return name == "vlmcli" or name.startswith("vlmcli.")


def component(name: str) -> str:
    first = name.split(".")[1] if "." in name else ""
    return MEMBERS.get(first, first)


def is_allowed(found: Import) -> bool:
    source, target = component(found.source), component(found.target)
    if target in ("version", source):
        return True
    below = found.target.removeprefix("vlmcli.")
    return any(below == name or below.startswith(f"{name}.") for name in LAW[source]) or (
        target in LAW[source]
    )


def test_every_module_stands_in_the_law():
    assert {component(name) for name in modules()} <= LAW.keys()


def test_nobody_imports_what_the_law_does_not_allow():
    assert not [
        str(found) for found in all_imports() if is_own(found.target) and not is_allowed(found)
    ]


def test_the_law_itself_has_no_cycle():
    def below(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " → ".join((*path, name))
        for other in LAW[name.split(".")[0]]:
            below(other.split(".")[0], (*path, name))

    for name in LAW:
        below(name, ())


@pytest.mark.parametrize("library", THIRD_PARTY)
def test_libraries_stay_where_they_belong(library):
    strangers = [
        str(found)
        for found in all_imports()
        if found.target.split(".")[0] == library
        and component(found.source) not in THIRD_PARTY[library]
    ]
    assert not strangers


def test_no_module_imports_itself_in_a_circle():
    edges: dict[str, set[str]] = {name: set() for name in modules()}
    for found in all_imports():
        if found.target in edges and not found.is_typing:
            edges[found.source].add(found.target)
    finished: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " → ".join((*path, name))
        if name not in finished:
            for target in edges[name]:
                visit(target, (*path, name))
            finished.add(name)

    for name in edges:
        visit(name, ())


def loaded_with(name: str) -> set[str]:
    """Everything that importing a module loads: its imports outside functions, with packages."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        if current in modules():
            eager = (found for found in imports_of(current) if not found.is_lazy)
            waiting += [found.target for found in eager if not found.is_typing]
        if "." in current and is_own(current):
            waiting.append(current.rpartition(".")[0])
    return seen


LIGHT = [
    *("vlmcli.__main__", "vlmcli.pipeline", "vlmcli.page_worker"),
    *("vlmcli.engine.geometry", "vlmcli.engine.buckets"),
]


@pytest.mark.parametrize("name", LIGHT)
def test_torch_is_loaded_only_where_a_model_is(name):
    libraries = {found.split(".")[0] for found in loaded_with(name)}
    assert not libraries & {"torch", "triton", "transformers", "tokenizers", "safetensors"}
    assert "httpx2" not in libraries


def test_the_process_that_holds_the_model_draws_nothing():
    libraries = {found.split(".")[0] for found in loaded_with("vlmcli.pipeline")}
    assert not libraries & {"cv2", "scipy", "PIL", "pymupdf", "onnxruntime"}


def test_memory_is_planned_without_torch():
    for name in modules():
        if component(name) == "memory":
            assert not {"torch", "triton"} & {found.split(".")[0] for found in loaded_with(name)}


def test_the_command_line_starts_without_numbers_and_pictures():
    libraries = {found.split(".")[0] for found in loaded_with("vlmcli.__main__")}
    assert not libraries & {"numpy", "scipy", "cv2", "PIL", "pymupdf", "rich", "onnxruntime"}


def test_plain_data_knows_no_library():
    for name in ("vlmcli.errors", "vlmcli.options", "vlmcli.results", "vlmcli.report"):
        libraries = {found.split(".")[0] for found in loaded_with(name)} - {"vlmcli"}
        assert libraries <= {"collections", "dataclasses", "enum", "json", "re", "typing"}


@pytest.mark.parametrize("name", modules())
def test_a_file_does_one_thing(name):
    text = modules()[name].read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    assert ast.get_docstring(ast.parse(text)), "the first lines say what the file does"
