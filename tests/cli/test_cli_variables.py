"""`VLMCLI_*` variables that nothing reads: a warning, once, for any command."""

import json
import os
import re

import pytest
from command_line import ROOT

from vlmcli.cli.variables import OTHERS, variable_of, warnings

TYPO = {"VLMCLI_MAX_MEMROY": "1GiB"}
SAID = (
    b"vlmcli: warning: no such variable, VLMCLI_MAX_MEMROY is ignored: "
    b"did you mean VLMCLI_MAX_MEMORY?\n"
)


def without_fake(stderr: bytes) -> bytes:
    """Less the warning that the fake pipeline makes in every job."""
    return stderr.replace(b"vlmcli: warning: a warning\n", b"")


@pytest.mark.parametrize(
    "args",
    [
        ("ocr", "a.pdf"),
        ("ask", "a.pdf", "-q", "Who?", "--progress", "none"),
        ("cache", "info"),
        ("models", "list"),
        ("plan", "--dpi", "100"),
    ],
)
def test_a_misspelt_variable_is_a_warning_once(cli, args):
    done = cli(*args, env=TYPO, fake={} if args[0] in ("ocr", "ask") else None)
    assert done.returncode == 0
    assert without_fake(done.stderr) == SAID


def test_it_takes_the_form_that_was_asked_for(cli):
    done = cli("ocr", "a.pdf", "--progress", "json", env=TYPO, fake={})
    events = [json.loads(line) for line in done.stderr.splitlines()]
    said = [event["message"] for event in events if event["event"] == "warning"]
    assert said == [SAID.decode().removeprefix("vlmcli: warning: ").strip(), "a warning"]
    assert cli("ocr", "a.pdf", "-q", env=TYPO, fake={}).stderr == b""


def test_a_value_is_never_shown_and_nothing_near_is_no_guess(cli):
    env = {"VLMCLI_PASWORD": "s3cret", "VLMCLI_12345": "x", "VLMCLI_EMPTY": ""}
    said = cli("ocr", "a.pdf", env=env, fake={}).stderr
    said = without_fake(said).decode()
    assert "s3cret" not in said
    assert "VLMCLI_PASWORD is ignored: did you mean VLMCLI_PASSWORD?" in said
    assert "VLMCLI_12345 is ignored\n" in said
    assert len(said.splitlines()) == 2


def test_every_variable_that_is_there_is_known(cli):
    """Of options, whichever command has them, and all others that code and tests name."""
    named = re.findall(
        r"(?<!_)VLMCLI_[A-Z_]*[A-Z]",
        "".join(
            path.read_text()
            for folder in ("vlmcli", "docs", "recipes")
            for path in (ROOT / folder).rglob("*")
            if path.suffix in (".py", ".md", ".sh", ".yml")
        ),
    )
    values = {"VLMCLI_MAX_MEMORY": "4GiB", "VLMCLI_DPI": "150", "VLMCLI_MODEL": "nano"}
    values |= {"VLMCLI_FORMAT": "text", "VLMCLI_CACHE": "no", "VLMCLI_TEXT_LAYER": "auto"}
    values |= {"VLMCLI_QUESTION": "Who?", "VLMCLI_PASSWORD": "x", "VLMCLI_WRITE_DOCS": "1"}
    values |= {"VLMCLI_SERVER_API_KEY": "k", "VLMCLI_API_KEY": "k"}
    assert set(named) <= {*values, *OTHERS, "VLMCLI_OUTPUT"}
    assert without_fake(cli("ocr", "a.pdf", env=values, fake={}).stderr) == b""


def test_options_are_looked_at_only_where_a_variable_is_set(monkeypatch):
    for name in list(os.environ):
        if name.startswith("VLMCLI_"):
            monkeypatch.delenv(name)

    def options():
        raise AssertionError("asked for")
        yield ""

    assert warnings(options()) == []
    monkeypatch.setenv(variable_of("max-memory"), "1GiB")
    assert warnings(["max-memory"]) == []
