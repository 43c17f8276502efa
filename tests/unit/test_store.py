"""The result store: hits are exact, damage is noticed, the cap holds, nothing crashes."""

import os
import sqlite3
import stat
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from record_strategies import records
from reuse_pages import invoice
from store_pages import KEY, RECIPE, page, place, record

import vlmcli
from vlmcli.reuse import entries
from vlmcli.reuse.database import default_directory
from vlmcli.reuse.entries import Place, Recipe, pack_record, unpack_record
from vlmcli.reuse.fingerprint import fingerprint
from vlmcli.reuse.store import FILE_NAME, ResultStore


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def opened(tmp_path, warnings):
    def open_store(**options) -> ResultStore:
        return ResultStore(tmp_path / "results", on_warning=warnings.append, **options)

    return open_store


def fill(store: ResultStore, numbers, length: int = 20) -> None:
    for number in numbers:
        store.put(page(number), KEY, record(number, length), place(number))
    store.flush()


def raw(opened) -> sqlite3.Connection:
    store = opened()
    store.close()
    return sqlite3.connect(store.path)


@settings(max_examples=40)
@given(st.lists(records.filter(lambda one: not one.is_failed), max_size=5))
def test_whatever_a_record_holds_comes_back_as_it_was(tmp_path_factory, kept):
    directory = tmp_path_factory.mktemp("store")
    with ResultStore(directory) as store:
        for number, one in enumerate(kept):
            spot = Place(document=one.document, page=number)
            store.put(page(number), KEY, one, spot)
            assert store.get(page(number).digest, KEY) == one
    with ResultStore(directory) as store:
        for number, one in enumerate(kept):
            assert store.get(page(number).digest, KEY) == one
            assert store.at(Place(document=one.document, page=number)).record == one


def test_any_change_of_the_key_misses(opened, monkeypatch):
    with opened() as store:
        fill(store, [1])
        assert store.get(page(1).digest, KEY) == record(1)
        assert store.get(page(2).digest, KEY) is None
        for field in fields(Recipe):
            changed = replace(RECIPE, **{field.name: getattr(RECIPE, field.name) + "2"})
            assert store.get(page(1).digest, changed.digest()) is None, field.name
        for name in ("SCHEMA_VERSION", "__version__"):
            with monkeypatch.context() as patch:
                patch.setattr(entries, name, f"{getattr(vlmcli, name)}.1")
                assert store.get(page(1).digest, RECIPE.digest()) is None, name


@given(st.data())
def test_parts_of_a_recipe_cannot_flow_into_one_another(data):
    texts = st.text(st.sampled_from("ab1:"), max_size=4)
    first, second = (
        Recipe(**{field.name: data.draw(texts) for field in fields(Recipe)}) for _ in range(2)
    )
    assert (first.digest() == second.digest()) == (first == second)


@given(st.integers(0, 400), st.integers(1, 255))
def test_no_flipped_byte_becomes_text(position, flip):
    blob = bytearray(pack_record(b"d" * 32, KEY, record(1, 400)))
    assume(position < len(blob))
    blob[position] ^= flip
    assert unpack_record(b"d" * 32, KEY, bytes(blob)) is None
    whole = pack_record(b"d" * 32, KEY, record(1, 400))
    assert unpack_record(b"e" * 32, KEY, whole) is None
    assert unpack_record(b"d" * 32, b"s" * 32, whole) is None


def test_damaged_entries_are_dropped_and_the_others_kept(opened, warnings):
    with opened() as store:
        fill(store, range(1, 11))
    with raw(opened) as db:
        db.execute(
            "UPDATE pages SET record = substr(record, 1, 40) WHERE digest = ?", (page(3).digest,)
        )
        db.execute("UPDATE pages SET record = x'00' WHERE digest = ?", (page(7).digest,))
        db.commit()
    with opened() as store:
        assert store.get(page(3).digest, KEY) is None
        assert len(warnings) == 1
        check = store.verify()
        assert (check.num_checked, check.num_dropped, check.is_sound) == (9, 1, False)
        assert store.verify().is_sound
        assert [n for n in range(1, 11) if store.get(page(n).digest, KEY)] == [
            1,
            2,
            4,
            5,
            6,
            8,
            9,
            10,
        ]


@pytest.mark.parametrize("damage", ["garbage", "cut", "zeroed", "middle"])
def test_a_damaged_file_is_moved_aside_with_a_warning(opened, warnings, damage):
    with opened() as store:
        fill(store, range(1, 200), 2000)
        path = store.path
    data = bytearray(path.read_bytes())
    if damage == "garbage":
        data = b"not a database at all" * 1000
    elif damage == "cut":
        del data[len(data) // 2 :]
    elif damage == "zeroed":
        data[:4096] = bytes(4096)
    else:
        data[4096 : len(data) - 4096] = os.urandom(len(data) - 8192)
    path.write_bytes(data)
    with opened() as store:
        for number in range(1, 200):
            assert store.get(page(number).digest, KEY) in (None, record(number))
        store.verify()
        assert warnings
        fill(store, range(300, 310))
    with opened() as store:
        assert store.verify().is_sound
        assert store.get(page(305).digest, KEY) == record(305)


def test_what_was_used_longest_ago_goes_first_and_the_cap_holds(opened):
    with opened(max_bytes=400_000) as store:
        for number in range(1, 400):
            store.put(page(number), KEY, record(number, 4000), place(number))
            if number % 20 == 0:
                assert store.get(page(1).digest, KEY) == record(1, 4000), number
                store.flush()
                assert store.info().num_bytes <= 400_000
        info = store.info()
        assert 0 < info.num_pages < 399
        assert store.get(page(399).digest, KEY) is not None
        assert store.get(page(2).digest, KEY) is None
        assert store.at(place(2)) is None
    assert store.path.stat().st_size < 2 * 400_000


def test_sketches_go_before_texts_and_are_compared_only_under_their_recipe(opened):
    looks = [fingerprint(invoice(seed, size=10).print(150)) for seed in range(12)]
    size = looks[0].sketch.nbytes
    with opened(max_bytes=int(8 * size)) as store:
        for number, look in enumerate(looks):
            store.put(look, KEY, record(number), place(number))
            store.flush()
        info = store.info()
        assert info.num_pages == 12 and 0 < info.num_sketches < 6
    with opened(max_bytes=int(8 * size)) as store:
        found = store.nearest(looks[11].dhash256, KEY, max_distance=0, limit=3)
        assert [one.record for one in found] == [record(11)]
        assert found[0].sketch.decode().shape == looks[11].sketch.decode().shape
        assert store.nearest(looks[11].dhash256, b"s" * 32, max_distance=0, limit=3) == []
        plain = store.nearest(looks[0].dhash256, max_distance=0, limit=1)
        assert plain[0].record == record(0) and plain[0].sketch is None


def test_only_its_user_may_read_it(opened):
    with opened() as store:
        fill(store, [1])
        directory = store.path.parent
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        directory.chmod(0o755)
    with opened():
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_where_it_is(tmp_path):
    assert default_directory({"VLMCLI_CACHE_DIR": "/c", "XDG_CACHE_HOME": "/x", "HOME": "/h"}) == (
        tmp_path.__class__("/c/results")
    )
    assert str(default_directory({"XDG_CACHE_HOME": "/x", "HOME": "/h"})) == "/x/vlmcli/results"
    assert str(default_directory({"HOME": "/h"})) == "/h/.cache/vlmcli/results"
    assert default_directory({}).is_absolute()


@pytest.mark.parametrize("obstacle", ["file", "link"])
def test_a_directory_that_cannot_be_had_means_no_store_and_one_warning(
    tmp_path, warnings, obstacle
):
    spot = tmp_path / "results"
    if obstacle == "file":
        spot.write_text("in the way")
    else:
        (tmp_path / "elsewhere").mkdir()
        spot.symlink_to(tmp_path / "elsewhere")
    with ResultStore(spot, on_warning=warnings.append) as store:
        fill(store, [1, 2])
        assert store.get(page(1).digest, KEY) is None
        assert store.nearest(bytes(32), max_distance=256, limit=3) == []
        assert not store.info().is_usable
        assert store.clear() == 0
        assert store.verify().num_checked == 0
    assert len(warnings) == 1


def test_a_full_disk_means_no_more_writing_and_one_warning(opened, warnings):
    with opened() as store:
        fill(store, [1])
        store._database.attempt(
            lambda db: db.execute("PRAGMA max_page_count = 20").fetchall(), None
        )
        fill(store, range(2, 100), 4000)
        assert len(warnings) == 1 and "full" in warnings[0]
        fill(store, range(100, 103), 4000)
        assert store.get(page(1).digest, KEY) == record(1)
        assert store.get(page(50).digest, KEY) is None
    assert len(warnings) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_store_answers_and_keeps_nothing(opened, warnings):
    with opened() as store:
        fill(store, [1])
        path = store.path
    for file in path.parent.iterdir():
        file.chmod(0o400)
    path.parent.chmod(0o500)
    try:
        with opened() as store:
            assert store.get(page(1).digest, KEY) == record(1)
            fill(store, [2])
        assert len(warnings) == 1
    finally:
        path.parent.chmod(0o700)


def test_a_locked_store_keeps_results_waiting_and_writes_them_later(opened, monkeypatch):
    monkeypatch.setattr("vlmcli.reuse.database.BUSY_SECONDS", 0.05)
    with opened() as store:
        fill(store, [1])
        other = sqlite3.connect(store.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        fill(store, [2, 3])
        assert store.get(page(2).digest, KEY) == record(2)
        other.execute("ROLLBACK")
        other.close()
        store.flush()
    with opened() as store:
        assert store.get(page(3).digest, KEY) == record(3)


def test_clearing_leaves_nothing_of_a_document_in_the_files(opened):
    store = opened()
    secret = replace(record(1), text="", model="secret-model-name")
    store.put(page(1), KEY, secret, Place(document="/home/secret-name.pdf", page=1))
    store.flush()
    store._database.damaged_path.write_bytes(b"old secret-name")
    assert store.clear() == 1
    store.close()
    for file in store.path.parent.iterdir():
        assert b"secret" not in file.read_bytes()
    with opened() as store:
        assert store.info().num_pages == 0


def test_info_counts(opened):
    with opened() as store:
        fill(store, range(1, 6))
        store.put(page(6), KEY, replace(record(6), model="other@2"))
        info = store.info()
    assert info.is_usable and info.num_pages == 6 and info.path.name == FILE_NAME
    assert info.pages_by_model == (("nano@1", 5), ("other@2", 1))
    assert info.oldest_use <= info.newest_use
    assert info.file_bytes >= info.num_bytes / 2


def test_dhash_neighbours_come_nearest_first(opened):
    rng = np.random.default_rng(0)
    base = rng.integers(0, 256, 32, dtype=np.uint8)
    with opened() as store:
        for number in range(1, 9):
            bits = np.unpackbits(base)
            bits[: 4 * number] ^= 1
            look = replace(page(number), dhash256=np.packbits(bits).tobytes(), is_distinctive=True)
            store.put(look, KEY, record(number))
    with opened() as store:
        found = store.nearest(base.tobytes(), max_distance=14, limit=9)
        assert [one.record.page for one in found] == [1, 2, 3]
