"""Reuse as users meet it: within a job, from one run to the next, and switched off."""

import json
import stat

import pytest
from command_line import read_records, without_history
from real_documents import write_pages

NUM_PAGES = 8
CHANGED = (3, 6)
"""Pages, from 1, that are others in the second version of the document."""


@pytest.fixture
def store(real):
    """The environment of a store that lasts from run to run."""
    return {"VLMCLI_CACHE_DIR": str(real.folder / "private" / "store")}


def kinds(records: list[dict]) -> list[str]:
    return [record["reuse"]["kind"] for record in records]


@pytest.mark.slow
def test_a_run_over_a_changed_document_reads_what_is_new_with_old_texts_as_drafts(real, store):
    scan = real.folder / "scan.pdf"
    args = ("scan.pdf", "--text-layer", "ignore")
    write_pages(scan, range(NUM_PAGES))
    first = real.records(*args, env=store)
    assert {record["source"] for record in first} == {"model"}
    write_pages(scan, [n + 50 * (n + 1 in CHANGED) for n in range(NUM_PAGES)])
    second = real.records(*args, "--stats", "stats.json", env=store)
    for old, new in zip(first, second, strict=True):
        origin = {"document": "scan.pdf", "page": new["page"], "run": "earlier"}
        is_new = new["page"] in CHANGED
        assert new["source"] == ("model" if is_new else "reuse")
        assert new["reuse"] == {
            "kind": "draft" if is_new else "exact",
            "from": origin,
            "verified_by": "model" if is_new else "sha256",
        }
        assert is_new or without_history([new]) == without_history([old])
    stats = json.loads((real.folder / "stats.json").read_text())
    assert (stats["reuse_draft"], stats["reuse_exact"]) == (len(CHANGED), NUM_PAGES - len(CHANGED))
    alone = real.records(*args, "--reuse", "off", env=store)
    assert without_history(alone) == without_history(second)
    assert set(kinds(alone)) == {"none"}


def test_what_is_kept_is_private_and_a_run_can_do_without(real, store):
    write_pages(real.folder / "scan.pdf", [1, 2])
    folder = real.folder / "private" / "store"
    real.records("scan.pdf", "--text-layer", "ignore", "--no-cache", env=store)
    real.records("scan.pdf", "--text-layer", "ignore", "--reuse", "off", env=store)
    real.records("scan.pdf", "--text-layer", "only", env=store)
    assert not folder.exists()
    first = real.records("scan.pdf", "--text-layer", "ignore", env=store)
    (kept,) = folder.iterdir()
    assert kept.is_dir() and stat.S_IMODE(kept.stat().st_mode) == 0o700
    shown = json.loads(real("cache", "info", "--json", env=store).stdout)
    assert shown["num_pages"] == 2 and shown["pages_by_model"] == [[first[0]["model"], 2]]


def test_another_question_never_meets_an_old_result(real, store):
    write_pages(real.folder / "scan.pdf", [1])
    args = ("scan.pdf", "--text-layer", "ignore")
    real.records(*args, env=store)
    assert kinds(real.records(*args, env=store)) == ["exact"]
    cut = real.records(*args, "--max-tokens", "5", "--stats", "stats.json", env=store)
    assert kinds(cut) == ["draft"]
    assert json.loads((real.folder / "stats.json").read_text())["reuse_other_recipe"] == 1
    assert kinds(real.records(*args, env=store)) == ["exact"]


def test_a_store_that_cannot_be_used_costs_a_warning(real):
    write_pages(real.folder / "scan.pdf", [1])
    (real.folder / "file").write_bytes(b"")
    env = {"VLMCLI_CACHE_DIR": str(real.folder / "file")}
    done = real("ocr", "scan.pdf", "--text-layer", "ignore", "-f", "jsonl", env=env)
    assert done.returncode == 0
    assert b"result store cannot be used" in done.stderr
    assert len(read_records(done.stdout)) == 1


@pytest.mark.slow
def test_the_doctor_reads_what_a_run_wrote(real, store):
    def findings() -> dict[str, str]:
        found = json.loads(real("doctor", "stats.json", "--json").stdout)["findings"]
        return {finding["name"]: finding["evidence"] for finding in found}

    write_pages(real.folder / "scan.pdf", [1, 2])
    args = ("scan.pdf", "--text-layer", "ignore", "--stats", "stats.json", "--overwrite")
    real.records(*args, env=store)
    # What takes time depends on the machine; what was reused does not.
    known, old = "kept results do not apply", "most results are of earlier runs"
    assert not {known, old} & findings().keys()
    real.records(*args, "--max-tokens", "4", env=store)
    assert "2 of 2 pages" in findings()[known]
    real.records(*args, env=store)
    assert "2 pages were answered" in findings()[old]
    assert b"earlier runs\n" in real("doctor", "stats.json").stdout
    real.records(*args, "--dpi", "90", env=store)
    stats = json.loads((real.folder / "stats.json").read_text())
    assert stats["reuse_resized"] == 2
    timed = ("write", "transfer", "idle", "render", "encode", "prefill", "decode")
    assert all(stats[f"seconds_{name}"] >= 0 for name in timed)
    assert 0 < stats["page_seconds_median"] <= stats["page_seconds_max"]
    for name, text in (("none.json", None), ("bad.json", "{"), ("other.json", '{"a": 1}')):
        if text is not None:
            (real.folder / name).write_text(text)
        assert real("doctor", name).returncode == 3
