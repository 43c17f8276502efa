"""`vlmcli cache` as users run it: says what is kept, deletes it, notices damage."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from vlmcli.results import PageRecord
from vlmcli.reuse.entries import Place, Recipe
from vlmcli.reuse.fingerprint import PageFingerprint
from vlmcli.reuse.store import ResultStore

RECORD = PageRecord(document="a.pdf", page=1, pages=3, status="ok", text="x", model="nano@1")
RECIPE = Recipe(
    model="nano@1", task="ocr", resolution="", dtype="float32", device="cpu", reader="engine"
)


@pytest.fixture
def cache(cli, tmp_path):
    """Runs `vlmcli cache ...` over a store with three pages."""
    with ResultStore(tmp_path / "kept" / "results") as store:
        for number in (1, 2, 3):
            page = PageFingerprint(
                digest=bytes([number]) * 32,
                dhash64=bytes(8),
                dhash256=bytes(32),
                is_distinctive=False,
            )
            record = replace(RECORD, page=number)
            store.put(page, RECIPE.digest(), record, Place(document="/a.pdf", page=number))

    def run(*args: str, code: int = 0, directory: Path = tmp_path / "kept"):
        done = cli("cache", *args, env={"VLMCLI_CACHE_DIR": str(directory)})
        assert done.returncode == code, done.stderr.decode()
        return done.stdout.decode(), done.stderr.decode()

    return run


def test_info_says_what_is_there(cache, tmp_path):
    out, err = cache("info", "--json")
    data = json.loads(out)
    assert data["num_pages"] == 3 and data["is_usable"] and not err
    assert data["pages_by_model"] == [["nano@1", 3]]
    text, _ = cache("info")
    assert "nano@1: 3" in text and str(tmp_path / "kept") in text


def test_clear_deletes_everything(cache):
    assert json.loads(cache("clear", "--json")[0]) == {"deleted": 3}
    assert json.loads(cache("info", "--json")[0])["num_pages"] == 0
    assert cache("clear")[0] == "deleted the results of 0 pages\n"


def test_verify_finds_damage_and_removes_it(cache, tmp_path):
    assert json.loads(cache("verify", "--json")[0])["is_sound"]
    (file,) = (tmp_path / "kept" / "results").glob("*.sqlite")
    data = bytearray(file.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    file.write_bytes(data)
    out, err = cache("verify", "--json")
    assert not json.loads(out)["is_sound"] and "damaged" in err
    assert json.loads(cache("verify", "--json")[0])["is_sound"]


def test_a_store_that_cannot_be_used_is_a_warning(cache, tmp_path):
    (tmp_path / "file").write_text("in the way")
    out, err = cache("info", "--json", directory=tmp_path / "file")
    assert not json.loads(out)["is_usable"]
    assert err.count("\n") == 1 and "cannot be used" in err
