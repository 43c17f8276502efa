"""Settings in TOML files: what is wrong is named with its line, and which files count."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.errors import UsageError
from vlmcli.recipes import config, named
from vlmcli.recipes.schema import check_tables
from vlmcli.recipes.toml_file import line_of, read_toml

SCHEMA = {
    "ocr": {
        "dpi": "whole",
        "format": "texts",
        "cache": "switch",
        "max-memory": "size",
        "page-timeout": "number",
        "text-layer": "text",
        "password": "text",
    },
    "plan": {"dpi": "whole", "max-memory": "size", "jobs": "whole"},
}


def settings(tmp_path, text: str) -> dict[str, dict]:
    path = tmp_path / "vlmcli.toml"
    path.write_text(text, encoding="utf-8")
    found = check_tables(read_toml(path, label="vlmcli.toml"), SCHEMA)
    return {
        command: {name: setting.value for name, setting in table.items()}
        for command, table in found.items()
    }


def test_shared_options_reach_the_commands_that_know_them_and_give_way_to_their_tables(tmp_path):
    text = """
dpi = 300
max_memory = 1024
jobs = 2
[ocr]
format = "jsonl"
dpi = 100
cache = false
page-timeout = 3
[plan]
max-memory = "2GiB"
"""
    assert settings(tmp_path, text) == {
        "ocr": {
            "dpi": 100,
            "max-memory": "1024",
            "format": ["jsonl"],
            "cache": False,
            "page-timeout": 3,
        },
        "plan": {"dpi": 300, "max-memory": "2GiB", "jobs": 2},
    }


WRONG = {
    "unknown": (
        "dpi = 3\n\n[ocr]\n# why\ndpy = 3\n",
        "line 5: unknown option of ocr: dpy (did you mean dpi?)",
    ),
    "unlike any": (
        "[plan]\nfrobnicate = 1\n",
        "line 2: unknown option of plan: frobnicate (known: dpi, jobs",
    ),
    "of another command": ("[plan]\nformat = 'text'\n", "line 2: unknown option of plan: format"),
    "table": ("[ocrr]\ndpi = 3\n", "line 1: unknown table: ocrr (did you mean ocr?)"),
    "switch": ("[ocr]\ncache = 'yes'\n", "line 2: cache must be true or false, not 'yes'"),
    "whole": ("[ocr]\ndpi = 'high'\n", "line 2: dpi must be a whole number, not 'high'"),
    "truth is no number": ("dpi = true\n", "line 1: dpi must be a whole number, not true"),
    "fraction": ("dpi = 1.5\n", "line 1: dpi must be a whole number, not 1.5"),
    "number": ("[ocr]\npage-timeout = '3'\n", "line 2: page-timeout must be a number"),
    "text": ("[ocr]\ntext-layer = 3\n", "line 2: text-layer must be text in quotes, not 3"),
    "texts": ("[ocr]\nformat = [\n 'a',\n 1]\n", "line 2: format must be text in quotes, or a"),
    "size": ("max-memory = 1.5\n", 'line 1: max-memory must be a size such as "4GiB", not 1.5'),
    "secret": ("[ocr]\npassword = 'x'\n", "line 2: password has no place in a file (set VLMCLI_"),
    "secret at the top": ("password = 'x'\n", "line 1: password has no place in a file"),
    "where to": ("[ocr]\noutput = 'x'\n", "line 2: output has no place in a file (give -o"),
    "syntax": ("dpi = 3\ncache = = true\n", "line 2: not TOML"),
    "twice": ("dpi = 3\ndpi = 4\n", "line 2: not TOML"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named_with_its_line(tmp_path, case):
    text, message = WRONG[case]
    with pytest.raises(UsageError) as caught:
        settings(tmp_path, text)
    assert f"vlmcli.toml, {message}" in str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "x.toml"
    path.write_bytes(b"dpi = 3\n# \xff\n")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_toml(path)
    with pytest.raises(UsageError, match="cannot read"):
        read_toml(tmp_path)


VALUES = st.sampled_from(["1", "'a'", "[\n 1,\n\n 2]", '"""\nx = 1\n"""', "{ a = 1 }", "'[t]'"])
NOISE = st.sampled_from(["", "# x = 1", "# [ocr]"])


@given(st.lists(st.tuples(NOISE, VALUES), min_size=1, max_size=6), st.booleans())
def test_a_value_is_on_the_line_where_its_name_stands(pairs, in_table):
    lines = ["first = 0", "[table]"] if in_table else []
    places = {}
    for number, (noise, value) in enumerate(pairs):
        lines.append(noise)
        places[f"key{number}"] = len("\n".join(lines).split("\n")) + 1
        lines.append(f"key{number} = {value}")
    text = "\n".join(lines)
    tomllib.loads(text)
    root = ("table",) if in_table else ()
    assert {key: line_of(text, (*root, key)) for key in places} == places
    assert line_of(text, (*root, "missing")) is None


# --- recipes -----------------------------------------------------------------------------------


def test_an_unknown_recipe_lists_those_there_are():
    with pytest.raises(UsageError) as caught:
        named.load_recipe("archiv", SCHEMA)
    assert "did you mean archive?" in str(caught.value)
    assert all(name in str(caught.value) for name in named.recipe_names())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[ocr]\ndpi = 3\n", "says what it is for"),
        ("[ocr]\ndpi = 3\n[description]\nx = 1\n", "line 3: a recipe says what it is for"),
        ("description = 'x'\ndpi = 3\n", "line 2: unknown table: dpi"),
        ("description = 'x'\n[serve]\nport = 3\n", "line 2: unknown table: serve"),
    ],
)
def test_what_is_no_recipe(tmp_path, text, message):
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        named.load_recipe(str(path), SCHEMA)
    assert message in str(caught.value) and "own.toml" in str(caught.value)


# --- configuration files -----------------------------------------------------------------------


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with a repository in it and a folder deep in that; outside of it a trap."""
    home = tmp_path / "home"
    (home / "repo" / ".git").mkdir(parents=True)
    (home / "repo" / "a" / "b").mkdir(parents=True)
    (tmp_path / "vlmcli.toml").write_text("not TOML at all")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return home


def labels(folder) -> list[str]:
    return [file.label for file in config.find_config_files(folder)]


def test_the_nearest_file_up_to_the_root_of_the_repository_counts(home):
    deep = home / "repo" / "a" / "b"
    assert labels(deep) == []
    (home / "vlmcli.toml").write_text("dpi = 1")
    assert labels(deep) == []
    (home / "repo" / "pyproject.toml").write_text("[tool.vlmcli]\ndpi = 2\n")
    assert labels(deep) == ["../../pyproject.toml"]
    (home / "repo" / "vlmcli.toml").write_text("dpi = 3")
    assert labels(deep) == ["../../vlmcli.toml"]
    (deep / "vlmcli.toml").write_text("dpi = 4")
    assert labels(deep) == ["vlmcli.toml"]


def test_outside_of_repositories_the_search_ends_at_home_and_never_leaves_it(home, tmp_path):
    (home / "scans").mkdir()
    (home / "vlmcli.toml").write_text("dpi = 1")
    assert labels(home / "scans") == ["../vlmcli.toml"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert labels(elsewhere) == []
    (elsewhere / "vlmcli.toml").write_text("dpi = 1")
    assert labels(elsewhere) == ["vlmcli.toml"]


def test_the_users_file_comes_first_and_is_the_weakest(home, tmp_path, monkeypatch):
    own = home / ".config" / "vlmcli" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text("dpi = 1")
    (home / "repo" / "vlmcli.toml").write_text("dpi = 2")
    assert labels(home / "repo") == [str(own), "vlmcli.toml"]
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
    assert labels(home / "repo") == ["vlmcli.toml"]


@pytest.mark.parametrize("text", ["[project]\nname = 'x'\n", "[broken", "[tool.vlmcli]\n"])
def test_a_pyproject_without_our_table_is_none_of_our_business(home, text):
    (home / "repo" / "pyproject.toml").write_text(text)
    assert labels(home / "repo" / "a") == []
    (home / "repo" / "a" / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    assert labels(home / "repo" / "a" / "b") == []


def test_faults_in_a_pyproject_are_on_its_own_lines(home):
    path = home / "repo" / "pyproject.toml"
    path.write_text("[project]\nname = 'vlmcli'\n\n[tool.vlmcli]\ndpy = 2\n")
    (file,) = config.find_config_files(home / "repo" / "a")
    with pytest.raises(UsageError, match=r"\.\./pyproject\.toml, line 5: unknown option: dpy"):
        check_tables(file, SCHEMA)


def test_a_named_file_has_to_be_there_and_to_have_our_table(home):
    with pytest.raises(UsageError, match="no such file"):
        config.named_config_file(home / "missing.toml")
    path = home / "pyproject.toml"
    path.write_text("[project]\nname = 'x'\n")
    with pytest.raises(UsageError, match=r"no table \[tool\.vlmcli\]"):
        config.named_config_file(path)
