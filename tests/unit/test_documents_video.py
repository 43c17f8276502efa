"""Videos: frames by their time, the same ones whoever asks in which order; damage costs itself."""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from documents_kit import COLOUR, GREY, opened
from hypothesis import given
from hypothesis import strategies as st
from video_kit import FORMATS, decoded, numbered, write_video

from vlmcli.documents import heif, images
from vlmcli.documents.source import RenderSpec, iter_sources, kind_of
from vlmcli.documents.video import _Player
from vlmcli.documents.video_index import displayed
from vlmcli.errors import InputError, PageError

SECONDS = st.integers(1, 400).map(lambda n: n / 10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A video of 50 numbered frames, ten a second, in every format that OpenCV writes."""
    folder = tmp_path_factory.mktemp("videos")
    for code, name in FORMATS.values():
        write_video(folder / name, numbered(50), code=code)
    return folder


@pytest.fixture(scope="module")
def data():
    return Path(__file__).parents[1] / "data" / "video"


def every_video(folder, data):
    return [*sorted(folder.iterdir()), *sorted(data.iterdir())]


# --- which frames -------------------------------------------------------------------------------


@given(st.lists(SECONDS, min_size=1, max_size=40, unique=True).map(sorted), SECONDS, SECONDS)
def test_a_page_is_what_is_on_display_at_each_multiple_of_the_interval(times, interval, more):
    starts, step = np.array(times) * 1000, interval * 1000
    end = float(starts[-1] + max(np.median(np.diff(starts)) if len(starts) > 1 else step, 0))
    end = max(end, starts[-1] + more * 1000)
    samples = np.arange(starts[0], end - 1e-6, step)
    # A start may lie a rounding error behind the sample that it equals.
    places = np.searchsorted(starts, samples + 1e-6, "right") - 1
    shown = {float(start) for start in starts[places]}
    found = displayed(starts, step, end)
    assert sorted(shown) == found.tolist()
    assert found[0] == starts[0]


def test_a_rate_that_is_no_whole_number_loses_no_second():
    times = np.arange(300) * 1001 / 30
    pages = displayed(times, 1000.0)
    assert len(pages) == 11
    assert np.all(np.abs(pages - np.arange(11) * 1000) < 1001 / 30)


def test_frames_that_stay_are_one_page_and_the_last_one_stays_to_the_end():
    times = np.array([0.0, 40, 80, 9001])
    assert displayed(times, 1000.0).tolist() == [0, 80]
    assert displayed(times, 1000.0, 12_000.0).tolist() == [0, 80, 9001]
    assert displayed(times[:1], 1000.0).tolist() == [0]
    assert displayed(times[:0], 1000.0).tolist() == []


# --- the same frames ----------------------------------------------------------------------------


def test_content_decides_and_not_the_suffix(folder, tmp_path):
    for path in folder.iterdir():
        copy = tmp_path / "a.pdf"
        copy.write_bytes(path.read_bytes())
        assert kind_of(copy) == "video"
        with opened(copy) as document:
            assert document.num_pages == 5
            assert document.warnings == ()


def test_pages_are_known_without_decoding_them_and_say_their_time(folder):
    with opened(folder / "a.avi", frame_interval=0.5) as document:
        handles = [document.page(index) for index in range(document.num_pages)]
    assert [handle.time for handle in handles] == [n / 2 for n in range(10)]
    assert {(h.width, h.height, h.unit, h.rotation) for h in handles} == {(160, 96, "px", 0)}


@pytest.mark.parametrize("seed", [0, 1])
def test_any_order_gives_the_frames_that_decoding_from_the_start_gives(folder, data, seed):
    for path in every_video(folder, data):
        everything = decoded(path)
        for interval in (0.1, 0.35, 1):
            with opened(path, frame_interval=interval) as document:
                order = list(range(document.num_pages)) * 2
                random.Random(seed).shuffle(order)
                for index in order:
                    time = document.page(index).time * 1000
                    want = next(frame for at, frame in everything if at >= time - 0.5)
                    found = document.render(index, COLOUR).pixels
                    assert np.array_equal(found, want[:, :, ::-1]), (path.name, interval, index)


def test_every_frame_is_a_page_where_the_interval_is_short(folder, data):
    for path in every_video(folder, data):
        with opened(path, frame_interval=0.01) as document:
            assert document.num_pages == len(decoded(path))


def test_a_video_that_lies_on_its_side_is_turned(data):
    with opened(data / "b-frames.mp4") as document:
        handle = document.page(0)
        assert (handle.width, handle.height) == (96, 160)
        assert document.render(0, COLOUR).pixels.shape == (160, 96, 3)


def test_frames_that_are_cut_off_by_the_header_are_no_pages(data):
    with opened(data / "cut-by-edit-list.mp4", frame_interval=1) as document:
        assert document.num_pages == 5
        last = document.render(4, GREY).pixels
    with opened(data / "b-frames.mp4", frame_interval=0.01) as document:
        assert not np.array_equal(last, document.render(4, GREY).pixels)


def test_large_frames_are_made_smaller_and_huge_ones_refused(tmp_path):
    path = write_video(tmp_path / "big.avi", numbered(2, size=(640, 480)))
    with opened(path, frame_interval=0.1) as document:
        spec = RenderSpec(dpi=100, max_pixels=10_000, grey=True)
        size = document.page(1).pixel_size(spec.dpi, spec.max_pixels)
        picture = document.render(1, spec)
        assert picture.pixels.shape == (size.height, size.width)
        assert picture.downscaled and size.width * size.height <= 10_000
    path = write_video(tmp_path / "huge.avi", numbered(1, size=(6000, 4000)))
    with opened(path) as document, pytest.raises(PageError) as caught:
        document.render(0, RenderSpec(dpi=100, max_pixels=10**6))
    assert caught.value.code == "bomb"


# --- damage -------------------------------------------------------------------------------------


def test_a_file_that_was_cut_says_so_and_keeps_what_is_there(folder, data, tmp_path):
    cuts = [folder / "a.avi", folder / "a.mkv", folder / "a.webm", data / "b-frames.mp4"]
    for path in cuts:
        whole = path.read_bytes()
        cut = tmp_path / path.name
        cut.write_bytes(whole[: len(whole) * 3 // 5])
        with opened(cut, frame_interval=0.1) as document:
            assert document.warnings == ("the file ends early; content may be missing",)
            assert 10 < document.num_pages < 45
            for index in range(document.num_pages):
                document.render(index, GREY)
        with pytest.raises(InputError, match="ends early") as caught:
            opened(cut, strict=True)
        assert caught.value.code == "damaged"
    # This one has its index at the end, as cameras write it.
    cut = tmp_path / "a.mp4"
    cut.write_bytes((folder / "a.mp4").read_bytes()[:-500])
    with pytest.raises(InputError, match="damaged or truncated video") as caught:
        opened(cut)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("part", [(0.2, 0.5), (0.4, 0.6), (0.1, 0.8)])
def test_frames_lost_in_the_middle_are_told(folder, tmp_path, part):
    """An AVI's frames have no times: those behind the gap once passed for the lost ones unsaid."""
    whole = bytearray((folder / "a.avi").read_bytes())
    first, last = (int(share * len(whole)) for share in part)
    whole[first:last] = random.Random(0).randbytes(last - first)
    damaged = tmp_path / "damaged.avi"
    damaged.write_bytes(whole)
    with opened(damaged, frame_interval=0.1) as document:
        (warning,) = document.warnings
        assert "damaged" in warning or "ends early" in warning
    with pytest.raises(InputError, match="leave out --strict") as caught:
        opened(damaged, strict=True)
    assert caught.value.code == "damaged"


def test_what_cannot_be_decoded_is_a_page_error_or_no_document(folder, tmp_path, monkeypatch):
    with opened(folder / "a.avi") as document:
        monkeypatch.setattr(_Player, "_grab", lambda self: False)
        with pytest.raises(PageError, match="cannot be decoded"):
            document.render(3, GREY)
        with pytest.raises(InputError, match=r"no frame can be decoded \(codec MJPG\)"):
            opened(folder / "a.avi")


FUZZ = """
import random, sys
from pathlib import Path
from vlmcli.documents.source import RenderSpec, Source, open_document
from vlmcli.errors import VlmcliError
whole, rng = Path(sys.argv[1]).read_bytes(), random.Random(sys.argv[1][-5:])
path = Path(sys.argv[2])
for number in range(30):
    data = bytearray(whole[: rng.randrange(20, len(whole))] if number % 2 else whole)
    for _ in range(rng.choice([1, 5, 50])):
        data[rng.randrange(12, len(data))] = rng.randrange(256)
    path.write_bytes(data)
    try:
        with open_document(Source(path=path, name="x"), frame_interval=0.5) as document:
            for index in range(min(document.num_pages, 12)):
                try:
                    document.render(index, RenderSpec(dpi=9, max_pixels=10**6, grey=True))
                except VlmcliError:
                    pass
    except VlmcliError:
        pass
print("through")
"""


def test_damage_never_crashes_hangs_or_says_a_word_of_its_own(folder, data, tmp_path):
    for path in every_video(folder, data):
        done = subprocess.run(
            [sys.executable, "-c", FUZZ, str(path), str(tmp_path / "x")],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "through\n", ""), path.name


def test_no_other_file_is_opened_on_behalf_of_a_name(folder, tmp_path, monkeypatch):
    """FFmpeg would take `concat:b.avi` for an instruction."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.avi").write_bytes((folder / "a.avi").read_bytes())
    odd = tmp_path / "concat:b.avi"
    odd.write_bytes((folder / "a.avi").read_bytes()[:9000])
    with opened(odd.relative_to(tmp_path), frame_interval=0.1) as document:
        assert document.num_pages < 50


def test_folders_have_videos_in_them(folder):
    found = [source.path.name for source in iter_sources([str(folder)])]
    assert found == ["a.avi", "a.mkv", "a.mp4", "a.webm"]


@pytest.mark.parametrize("kind", ["AVIF", "HEIC"])
@pytest.mark.parametrize(
    ("is_readable", "said"),
    [(False, r"photo\.mp4: not a document: it is an? {} image"), (True, r"damaged .* image")],
)
def test_still_pictures_in_the_boxes_of_a_video_are_none(
    tmp_path, monkeypatch, kind, is_readable, said
):
    monkeypatch.setattr(heif, "is_readable", lambda kind: is_readable)
    monkeypatch.setattr(images, "_formats", lambda: ("PNG",))
    path = tmp_path / "photo.mp4"
    path.write_bytes(b"\x00\x00\x00\x20ftyp" + kind.lower().encode() + bytes(40))
    with pytest.raises(InputError, match=said.format(kind)):
        opened(path)
