"""Parts of the server client: addresses and keys, pauses, the JSON on the wire, the loop guard."""

import base64
import io
import itertools
import json
import time
from dataclasses import replace
from email.utils import formatdate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from vlmcli.errors import UsageError
from vlmcli.fitness import require_consistent
from vlmcli.options import OcrOptions
from vlmcli.remote.endpoint import api_key, headers, parse_endpoint, without_key
from vlmcli.remote.patience import Patience, seconds_asked
from vlmcli.remote.watch import LoopWatch
from vlmcli.remote.wire import parse_piece, picture_url, request_body


@pytest.mark.parametrize(
    ("url", "base", "place"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1", "127.0.0.1:8000"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1", "127.0.0.1:8000"),
        ("http://a/v1/", "http://a/v1", "a"),
        ("https://a/v1/chat/completions", "https://a/v1", "a"),
        ("https://a/openai/v1beta", "https://a/openai/v1beta", "a"),
        ("HTTP://LocalHost:80/v1/models", "http://localhost:80/v1", "localhost:80"),
        ("http://[::1]:8000", "http://[::1]:8000/v1", "[::1]:8000"),
    ],
)
def test_addresses(url, base, place):
    endpoint = parse_endpoint(url)
    assert (endpoint.base, endpoint.place) == (base, place)
    assert parse_endpoint(endpoint.base) == endpoint


@pytest.mark.parametrize(
    "url", ["", "a", "a:8000", "ftp://a", "http://", "http://a:x", "http://u:p@a", "http://a?k=1"]
)
def test_no_addresses(url):
    with pytest.raises(UsageError):
        parse_endpoint(url)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("engine", "transformers"),
        ("quantize", ("int8",)),
        ("dtype", "bfloat16"),
        ("ray", "local"),
        ("ray_workers", 2),
        ("answer_schema", "{}"),
        ("drafts", "nano"),
    ],
)
def test_what_is_for_reading_here_is_refused_beside_a_server(name, value):
    here = OcrOptions(inputs=("a.pdf",), **{name: value})
    require_consistent(here)
    with pytest.raises(UsageError, match="server" if name == "drafts" else f"--{name[:3]}"):
        require_consistent(replace(here, server="http://a"))
    require_consistent(OcrOptions(inputs=("a.pdf",), server="http://a", task="markdown"))


def test_a_key_for_openai_goes_nowhere_in_the_clear(monkeypatch):
    monkeypatch.delenv("VLMCLI_SERVER_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "general")
    clear, local, safe = map(parse_endpoint, ("http://a", "http://127.0.0.1", "https://a"))
    assert (api_key(clear), api_key(local), api_key(safe)) == (None, "general", "general")
    monkeypatch.setenv("VLMCLI_SERVER_API_KEY", " own\n")
    assert {api_key(one) for one in (clear, local, safe)} == {"own"}
    assert headers("own") == {"Authorization": "Bearer own"} and headers(None) == {}
    assert without_key("it was own!", "own") == "it was ***!"


@given(st.integers(1, 40), st.none() | st.floats(0, 1e6), st.floats(0, 1))
def test_pauses_grow_and_honour_what_is_asked(tries, asked, dice):
    patience = Patience(retries=2, dice=lambda: dice)
    pause = patience.pause(tries, asked)
    assert 0.25 <= pause <= 121
    assert pause >= min(asked or 0, 120)
    assert patience.pause(tries + 1, asked) >= pause


def test_tries():
    patience = Patience(retries=2)
    assert patience.num_tries("server") == 3
    assert patience.num_tries("busy") > patience.num_tries("unreachable") > 3
    waits = [Patience(retries=0).pause(1, None) for _ in range(50)]
    assert len(set(waits)) > 10, "clients come back together"


def test_retry_after():
    assert seconds_asked(None) is None
    assert seconds_asked(" 7 ") == 7
    assert seconds_asked("soon") is None
    assert 50 < (seconds_asked(formatdate(time.time() + 60, usegmt=True)) or 0) <= 61
    assert seconds_asked(formatdate(0, usegmt=True)) == 0


def test_pictures_are_sent_without_loss_or_smaller():
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (40, 60, 3), dtype=np.uint8)
    urls = {kind: picture_url(pixels, kind) for kind in ("png", "jpeg")}
    for kind, url in urls.items():
        assert url.startswith(f"data:image/{kind};base64,")
        raw = base64.b64decode(url.partition(",")[2])
        found = np.asarray(Image.open(io.BytesIO(raw)))
        assert found.shape == pixels.shape
        assert (found == pixels).all() == (kind == "png")


def test_a_further_attempt_has_a_seed_and_a_temperature():
    given_ = {"model": "m", "picture": "p", "prompt": "q", "max_tokens": 5}
    first = json.loads(request_body(**given_, attempt=1, temperature=0.0))
    second = json.loads(request_body(**given_, attempt=2, temperature=0.3))
    assert "seed" not in first and first["temperature"] == 0
    assert (second["seed"], second["temperature"]) == (2, 0.3)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["choices", "delta", "message", "content", "usage", "error", "index"]
                ),
                inner,
            )
        ),
        max_leaves=12,
    )
)
def test_whatever_a_server_sends_is_a_piece_or_no_json_object(data):
    try:
        piece = parse_piece(json.dumps(data))
    except ValueError:
        assert not isinstance(data, dict)
    else:
        assert isinstance(piece.text, str)


# --- loops ---------------------------------------------------------------------------------------

PROSE = (
    "The committee met on Tuesday, 4 March, in room 12. Mrs Ødegård took the chair; the minutes "
    "of the last meeting were read and approved. Nothing else happened until noon.\n"
)


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in itertools.pairwise(places)]


@given(st.text(max_size=300), st.lists(st.integers(0, 10_000), max_size=20))
def test_the_text_is_what_came_in(text, cuts):
    watch = LoopWatch()
    for piece in pieces_of(text, cuts):
        watch.push(piece)
    assert watch.text == text


@pytest.mark.parametrize(
    "unit",
    ["and so on ", "a", "the same long sentence, again and again. ", "同じ文章を", "Straße 5a "],
)
def test_a_loop_is_found_and_cut_at_the_same_place_however_it_comes(unit):
    looping = PROSE + unit * (5000 // len(unit))
    found = []
    for size in (1, 7, 64, 4096):
        watch = LoopWatch()
        for start in range(0, len(looping), size):
            loop = watch.push(looping[start : start + size])
            if loop is not None:
                break
        else:
            raise AssertionError("not found")
        kept = watch.before(loop)
        assert looping.startswith(kept) and kept.startswith(PROSE.rstrip())
        assert len(kept) <= len(PROSE) + 6 * len(unit) + 6
        found.append(kept)
    assert len(set(found)) == 1


@pytest.mark.parametrize(
    "text",
    [
        PROSE * 3,
        "| 0.00 | 0.00 | 0.00 |\n" * 40,
        "Chapter 1 " + "." * 400 + " 7\n" + "Chapter 2 " + ". " * 200 + "9\n",
        "_" * 300,
    ],
)
def test_honest_repetition_is_no_loop(text):
    watch = LoopWatch()
    assert all(watch.push(char) is None for char in text)
    assert watch.end() is None
