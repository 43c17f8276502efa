"""docs/adding-a-family.md is true: files and names in it exist, and its example is whole."""

import ast
import re
from pathlib import Path

import pytest
from command_line import ROOT

from vlmcli.engine.models.registry import _MODULES, find_family

TEXT = (ROOT / "docs" / "adding-a-family.md").read_text(encoding="utf-8")
WORD = re.compile(r"`([^`]+)`")
MODELS = ROOT / "vlmcli" / "engine" / "models"
EXAMPLE = [
    pytest.param(*cells[:2], id=f"{number}-{cells[0].strip('`').rsplit('/', 1)[-1]}")
    for number, line in enumerate(TEXT[TEXT.index("## LightOnOCR") :].splitlines())
    if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 3
    and cells[0].startswith("`")
]


def names_in(file: Path) -> set[str]:
    """Everything that a file calls by name: what it defines, is given, and keys of its tables."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def all_names() -> set[str]:
    files = [*(ROOT / "vlmcli").rglob("*.py"), *(ROOT / "tests" / "tiny").glob("*.py")]
    return set().union(*(names_in(file) for file in files))


@pytest.mark.parametrize(("file", "names"), EXAMPLE)
def test_the_example_names_what_is_there(file, names):
    wanted = WORD.findall(names)
    assert wanted, "a row names something"
    assert set(wanted) <= names_in(ROOT / file.strip("`"))


def test_the_example_is_whole():
    """All functions and classes of the family's file stand in it, whatever is added there."""
    named = set(WORD.findall(TEXT))
    tree = ast.parse((MODELS / "lighton_ocr.py").read_text(encoding="utf-8"))
    defined = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    assert defined <= named
    assert len(EXAMPLE) > 10


def test_files_in_the_page_exist():
    words = [word for word in WORD.findall(TEXT) if re.fullmatch(r"[\w/.-]+(\.py|\.md|/)", word)]
    assert len(words) > 15
    homes = (ROOT, MODELS, ROOT / "vlmcli" / "engine" / "geometry")
    assert not [word for word in words if not any((home / word).exists() for home in homes)]


def test_names_in_the_page_exist():
    known = all_names()
    words = {word for word in WORD.findall(TEXT) if re.fullmatch(r"[A-Za-z_]\w*", word)}
    assert len(words) > 40
    assert words <= known


def test_what_a_family_file_offers_is_what_the_registry_takes():
    start = TEXT.index("## What a family file offers")
    rows = TEXT[start : TEXT.index("## Checklist")]
    listed = {word for row in re.findall(r"^\| (.*?) \|", rows, re.M) for word in WORD.findall(row)}
    source = (MODELS / "registry.py").read_text(encoding="utf-8")
    taken = set(re.findall(r"module\.(\w+)", source)) | set(
        re.findall(r'getattr\(module, "(\w+)"', source)
    )
    assert listed == taken
    for kind in _MODULES:
        assert find_family(kind).model_type == kind
