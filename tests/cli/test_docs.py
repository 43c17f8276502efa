"""The pages under docs/ are true: commands run, options exist, the reference is current.

`VLMCLI_WRITE_DOCS=1` with this test has docs/commands.md written anew from the program's own help.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
from command_line import ROOT, Cli, blocks

DOCS = ROOT / "docs"
PAGES = ("index.md", "pipelines.md", "quantisation.md", "searchable-pdf.md")

RUNNABLE = [
    pytest.param(page.name, block, id=f"{page.stem}-{number}")
    for page in map(DOCS.joinpath, PAGES)
    for number, block in enumerate(blocks(page.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize(("page", "block"), RUNNABLE)
def test_commands_run_and_print_something(shell, page, block):
    if "jq " in block and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    printed = shell(block)
    assert printed.strip()


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """What the program itself says of its commands, as Markdown."""
    folder = tmp_path_factory.mktemp("reference")
    done = subprocess.run(
        [sys.executable, "-m", "typer", "vlmcli.cli.app", "utils", "docs", "--name", "vlmcli"],
        cwd=folder,
        env=Cli(folder).environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.replace("&#x27;", "'").replace("&quot;", '"').rstrip("\n") + "\n"


def test_the_reference_of_commands_is_current(reference):
    page = DOCS / "commands.md"
    if os.environ.get("VLMCLI_WRITE_DOCS"):
        page.write_text(reference, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == reference, "VLMCLI_WRITE_DOCS=1 writes it anew"


def test_options_side_by_side_exist(reference):
    rows = re.findall(r"^\| .*\|$", (DOCS / "faq.md").read_text(encoding="utf-8"), re.M)[2:]
    ours = [re.findall(r"`([^`]*)`", row.split("|")[-2]) for row in rows]
    options = {word for cell in ours for word in re.findall(r"(?<!\S)--?[a-z-]+", " ".join(cell))}
    assert len(rows) >= 12 and len(options) >= 10
    assert not [option for option in options if not re.search(rf"[`, ]{option}\b", reference)]


def test_every_page_is_in_the_contents():
    named = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)
    assert sorted(named) == sorted(page.name for page in DOCS.glob("*.md"))


def instructions():
    """The Dockerfile's instructions, as (name, rest), continued lines joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    return [tuple(line.split(maxsplit=1)) for line in lines if line and not line.startswith("#")]


def test_the_container_starts_what_pip_installs():
    """Entry point, Python and what is installed are those of pyproject and README."""
    found = instructions()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (entry,) = [json.loads(rest) for name, rest in found if name == "ENTRYPOINT"]
    assert entry == ["vlmcli"] and set(entry) <= set(project["scripts"])
    (base,) = [rest for name, rest in found if name == "ARG" and rest.startswith("BASE=")]
    (minor,) = re.findall(r"^BASE=python:3\.(\d+)-slim$", base)
    (least,) = re.findall(r"^>=3\.(\d+)$", project["requires-python"])
    assert int(minor) >= int(least)
    assert "`pip install .`" in (ROOT / "README.md").read_text(encoding="utf-8")
    runs = " && ".join(rest for name, rest in found if name == "RUN")
    installs = re.findall(r"pip install ([^;&]*)", runs)
    assert len(installs) == 2 and all("-c constraints.txt" in words for words in installs)
    assert installs[-1].split()[-1].strip('"').startswith(".${EXTRAS")
    for words in re.findall(r"apt-get install ([^&]*)", runs):
        packages = [word for word in words.split() if not word.startswith("-")]
        assert packages == ["python3", "python3-venv"]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    copied = [word for name, rest in found if name == "COPY" for word in rest.split()[:-1]]
    assert copied and not set(copied) & set(ignored)
    assert [rest for name, rest in found if name == "USER"] != ["root"]


def test_the_container_installs_what_is_there():
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = [word for line in re.findall(r"^COPY (.*) \S+$", text, re.M) for word in line.split()]
    assert copied and all((ROOT / name).exists() for name in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(re.findall(r"EXTRAS=(\w+)", text))
    assert extras and extras <= set(project["optional-dependencies"])
    needed = {project["readme"], *project["license-files"]}
    assert needed <= set(copied)
