"""Pictures for the report: bounded, of the right page, and only of documents that may be shown."""

import io
from pathlib import Path

import pytest
from PIL import Image
from video_kit import numbered, write_video

from vlmcli.documents.base import Source
from vlmcli.documents.gallery import Gallery
from vlmcli.documents.lookup import find_document
from vlmcli.documents.source import open_document
from vlmcli.documents.thumbnails import draw_thumbnail
from vlmcli.errors import EncryptedError, InputError, PageError

SAMPLES = Path(__file__).parents[2] / "samples"


def gallery(**more) -> Gallery:
    def find(name: str) -> Source:
        return find_document(name, beside=SAMPLES)

    return Gallery(find, **{"password": None, "width": 200, **more})


@pytest.mark.parametrize(
    ("size", "width", "drawn"),
    [
        ((1000, 500), 200, (200, 100)),
        ((100, 50), 200, (100, 50)),
        ((500, 5000), 200, (40, 400)),
        ((3000, 30), 200, (200, 2)),
    ],
)
def test_pictures_are_bounded_both_ways(tmp_path, size, width, drawn):
    path = tmp_path / "a.png"
    Image.new("RGB", size, "white").save(path)
    with open_document(Source(path=path, name="a.png")) as document:
        found = draw_thumbnail(document, 0, width=width)
    assert (found.width, found.height) == pytest.approx(drawn, abs=1)
    with Image.open(io.BytesIO(found.data)) as image:
        assert image.format == "WEBP"
        assert image.size == (found.width, found.height)


def test_pdf_pages_are_drawn_at_the_width_that_is_wanted():
    some = gallery(width=300)
    found = some.draw("table.pdf", 1)
    some.close()
    assert found.width == pytest.approx(300, abs=1)
    assert found.height > 300


def test_documents_may_change_and_fail_in_between():
    some = gallery()
    assert some.draw("table.pdf", 1).data
    for _ in range(2):
        with pytest.raises(EncryptedError):
            some.draw("encrypted.pdf", 1)
    with pytest.raises(InputError):
        some.draw("no-such.pdf", 1)
    with pytest.raises(PageError, match="only 3 pages"):
        some.draw("blank-middle.pdf", 4)
    assert some.draw("blank-middle.pdf", 3).data
    some.close()
    some = gallery(password="baz")
    assert some.draw("encrypted.pdf", 1).data
    some.close()


def test_documents_are_found_where_they_were_or_beside_the_records(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    for name in ("a.pdf", "sub/b.pdf"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path / "sub")
    assert find_document("b.pdf", beside=tmp_path).path == Path("b.pdf")
    assert find_document("scans/a.pdf", beside=tmp_path).path == tmp_path / "a.pdf"
    assert find_document("sub/b.pdf", beside=tmp_path).path == tmp_path / "sub/b.pdf"
    for name in ("c.pdf", "-", "a\0b", "", "sub"):
        with pytest.raises(InputError):
            find_document(name, beside=tmp_path)


def test_nothing_outside_of_a_root_is_found(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside.pdf"
    (root / "in").mkdir(parents=True)
    (root / "in" / "a.pdf").touch()
    outside.touch()
    (root / "link.pdf").symlink_to(outside)
    assert find_document("in/a.pdf", beside=tmp_path, root=root).path == root / "in/a.pdf"
    for name in (str(outside), "../outside.pdf", "in/../../outside.pdf", "link.pdf"):
        with pytest.raises(InputError):
            find_document(name, beside=tmp_path, root=root)


def test_a_name_that_no_file_can_have_is_a_missing_document(tmp_path):
    for name in ("n" * 5000, "a/" * 3000, "nul\0l"):
        for root in (None, tmp_path):
            with pytest.raises(InputError) as caught:
                find_document(name, beside=tmp_path, root=root)
            assert caught.value.code == "missing"


def test_frames_of_a_video_are_those_that_were_read_at_whatever_interval(tmp_path):
    """They were once looked for by their number at the usual interval: other slides."""
    source = Source(path=write_video(tmp_path / "a.avi", numbered(50)), name="a.avi")
    some = Gallery(lambda name: source, password=None, width=160)
    for interval in (0.7, 1.5):
        with open_document(source, frame_interval=interval) as document:
            for index in range(document.num_pages):
                there = draw_thumbnail(document, index, width=160)
                found = some.draw("a.avi", index + 1, document.page(index).time)
                assert found == there
    for time in (0.05, 99.0):
        with pytest.raises(PageError, match="no frame at"):
            some.draw("a.avi", 1, time)
    some.close()
