"""Strips of print: parts, motions and words, whichever way they run."""

import json
import math
from dataclasses import replace

import numpy as np
import pymupdf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from places_kit import likeness
from record_strategies import page

from vlmcli.assemble import scaled_lines
from vlmcli.documents.lines.words import word_columns
from vlmcli.documents.source import Source
from vlmcli.errors import InputError
from vlmcli.outputs.files import AtomicFile
from vlmcli.outputs.jsonl import read_records
from vlmcli.outputs.searchable_pdf import SearchablePdfWriter
from vlmcli.outputs.words import lines_of, words_of
from vlmcli.results import Line, Strip
from vlmcli.reuse.adopt import adopted
from vlmcli.reuse.registration import Motion
from vlmcli.strip import angle_of, box_of, length_of, moved, part_of, quarter_of, slant_of

WORDS = ["Illinois", "of", "the", "1,234.50", "(a)", "committee"]
lengths = st.floats(5, 60)
angles = st.floats(-180, 180)


def strip_at(angle, length, height, words=(), bow=0.0):
    """A strip about the middle of a page of 1000 by 1000 pixels."""
    x, y = (length / 2 * f(math.radians(angle)) for f in (math.cos, math.sin))
    return Strip(
        start=(500 - x, 500 - y), end=(500 + x, 500 + y), ascent=0.8 * height,
        descent=0.2 * height, bow=bow, words=words,
    )  # fmt: skip


def line_of(angle, texts, unit, height, bow=0.0):
    """A line of words, letters `unit` pixels wide."""
    words, place = [], 0
    for text in texts:
        words.append((place, place + unit * len(text)))
        place += unit * (len(text) + 1)
    strip = strip_at(angle, place - unit, height, tuple(words), bow)
    return Line(bbox=box_of(strip), text=" ".join(texts), confidence=0.9, strip=strip)


some_lines = st.builds(
    line_of, angles, st.lists(st.sampled_from(WORDS), min_size=1, max_size=5), st.integers(8, 16),
    st.floats(16, 30), st.floats(-8, 8),
)  # fmt: skip


@given(angles, lengths)
def test_the_quarter_and_the_slant_are_the_angle(angle, length):
    strip = strip_at(angle, length, 10)
    assert abs(slant_of(strip)) <= 45 + 1e-6
    off = (-90 * quarter_of(strip) + slant_of(strip) - angle_of(strip)) % 360
    # Halfway between two quarters either may be the nearer one.
    assert min(off, 360 - off) < 1e-6 or abs(abs(slant_of(strip)) - 45) < 1e-6


@given(some_lines, st.floats(0, 1), st.floats(0, 1))
def test_parts_lie_in_the_whole(line, one, other):
    strip = replace(line.strip, bow=0.0)
    first, last = sorted((one * length_of(strip), other * length_of(strip)))
    x0, y0, x1, y1 = box_of(strip)
    a0, b0, a1, b1 = box_of(part_of(strip, first, last))
    assert x0 - 1 <= a0 <= a1 <= x1 + 1
    assert y0 - 1 <= b0 <= b1 <= y1 + 1
    whole = part_of(line.strip, 0.0, length_of(line.strip))
    assert whole.start == pytest.approx(line.strip.start, abs=1e-6)
    assert whole.end == pytest.approx(line.strip.end, abs=1e-6)
    assert whole.bow == pytest.approx(line.strip.bow)


@given(some_lines, st.floats(-180, 180), st.floats(0.5, 2), st.floats(-90, 90))
def test_what_moves_there_and_back_is_where_it_was(line, turn, scale, shift):
    cos, sin = (scale * f(math.radians(turn)) for f in (math.cos, math.sin))
    there = np.array([[cos, -sin, shift], [sin, cos, -shift]])
    back = np.linalg.inv(np.vstack((there, [0, 0, 1])))[:2]
    strip = moved(moved(line.strip, there.tolist()), back.tolist())
    # Each way rounds to a tenth of a pixel, words to whole ones.
    assert strip.start == pytest.approx(line.strip.start, abs=0.3)
    assert strip.end == pytest.approx(line.strip.end, abs=0.3)
    assert strip.ascent == pytest.approx(line.strip.ascent, abs=0.3)
    assert np.abs(np.subtract(strip.words, line.strip.words)).max() <= 2


@given(some_lines)
def test_words_stand_within_their_line(line):
    words = list(words_of(line))
    assert " ".join(word.text for word in words) == line.text
    for word in words:
        assert line.bbox[0] <= word.bbox[0] < word.bbox[2] <= line.bbox[2]
        assert line.bbox[1] <= word.bbox[1] < word.bbox[3] <= line.bbox[3]
    shares = list(words_of(replace(line, strip=replace(line.strip, words=()))))
    assert [word.text for word in shares] == [word.text for word in words]


@settings(max_examples=25, deadline=None)
@given(line=some_lines)
def test_a_pdf_has_each_word_in_its_box(tmp_path_factory, line):
    """At any angle, and bent."""
    folder = tmp_path_factory.mktemp("strip")
    Image.new("L", (1000, 1000), 255).save(folder / "a.png")
    record = page("a.png", text=line.text, lines=(line,), width=1000, height=1000)
    writer = SearchablePdfWriter(
        Source(path=folder / "a.png", name="a.png"), None, AtomicFile(folder / "a.pdf")
    )
    writer.write(record)
    writer.finish()
    with pymupdf.open(folder / "a.pdf") as pdf:
        scale = 1000 / pdf[0].rect.width
        found = [(w[4], tuple(scale * v for v in w[:4])) for w in pdf[0].get_text("words")]
    words = list(words_of(line))
    assert [text for text, _ in found] == [word.text for word in words]
    for word, (_, box) in zip(words, found, strict=True):
        assert likeness(box, word.bbox) > 0.8


@given(
    st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 300), st.floats(0, 1),
    st.text("abc WI.", max_size=40),
)  # fmt: skip
def test_every_word_has_its_columns_whatever_the_picture_shows(seed, height, width, share, text):
    rng = np.random.default_rng(seed)
    dark = np.repeat(rng.random(width) < share, 1)
    pixels = np.where(dark[None, :], 0, 255).astype(np.uint8).repeat(height, axis=0)
    columns = word_columns(pixels, text)
    assert len(columns) == len(text.split())
    edges = [edge for pair in columns for edge in pair]
    assert edges == sorted(edges)
    assert all(start < stop for start, stop in columns)
    assert all(-1e-6 <= edge <= width + 1e-6 for edge in edges)


def test_a_result_that_is_taken_over_brings_its_strips_along():
    line = line_of(90.0, ["one", "two"], 10, 20)
    source = page(lines=(line,), width=1000, height=1000)
    own = page("b.pdf", width=1000, height=1000)
    # The page lies 3 to the right of and 5 above the source.
    motion = Motion(matrix=np.array([[1.0, 0.0, -3.0], [0.0, 1.0, 5.0]]))
    (found,) = adopted(source, own, source.reuse, motion).lines
    assert found.strip.start == pytest.approx(np.add(line.strip.start, (3, -5)), abs=0.1)
    assert found.strip.words == line.strip.words
    (larger,) = scaled_lines((line,), (1000, 1000), (2000, 2000))
    assert length_of(larger.strip) == pytest.approx(2 * length_of(line.strip), abs=0.2)
    assert larger.strip.words[1] == tuple(2 * place for place in line.strip.words[1])


@pytest.mark.parametrize(
    "change",
    [
        {"start": [1]},
        {"start": "ab"},
        {"end": [float("nan"), 0]},
        {"ascent": 10**400},
        {"descent": None},
        {"words": [[1.5, 2]]},
        {"words": [[1]]},
        {"words": 7},
    ],
)
def test_a_strip_of_a_wrong_kind_is_no_record(change):
    data = page(lines=(line_of(0.0, ["a"], 9, 20),)).to_dict()
    data["lines"][0]["strip"] |= change
    with pytest.raises(InputError):
        list(read_records([json.dumps(data).encode()], "x"))


def test_a_record_without_strips_reads_and_says_what_it_did():
    """Text layers, other readers, and results of earlier versions."""
    record = page(lines=(Line(bbox=(1, 2, 3, 4), text="a"),))
    assert list(record.to_dict()["lines"][0]) == ["bbox", "text", "confidence"]
    (again,) = read_records([record.to_json().encode()], "x")
    assert again == record


@given(st.sampled_from([(0.0, 0.0), (1.0, 0.0)]), st.floats(-9, 9))
def test_a_strip_without_an_area_counts_as_none(end, ascent):
    strip = Strip(start=(0.0, 0.0), end=end, ascent=ascent, descent=-abs(ascent))
    line = Line(bbox=(0, 0, 9, 9), text="a b", strip=strip)
    (found,) = lines_of(page(lines=(line,)))
    assert found.strip is None
