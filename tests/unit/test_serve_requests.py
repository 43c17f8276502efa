"""Requests to the server, before the engine: what is understood, what is refused, and how."""

import base64
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.chat import PicturePart, Sampling
from vlmcli.errors import UsageError
from vlmcli.options import OcrOptions
from vlmcli.serve.access import Access, host_name, require_json
from vlmcli.serve.faults import ApiError
from vlmcli.serve.pictures import decode_data_url, store_pictures
from vlmcli.serve.protocol import Limits, parse_body
from vlmcli.serve.settings import ServeOptions, is_loopback, require_safe

LIMITS = Limits(max_images=2, max_tokens=100)
PIXEL = "data:image/png;base64," + base64.b64encode(b"pixels").decode()


def picture(url: str = PIXEL, **more) -> dict:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def text(words: str) -> dict:
    return {"type": "text", "text": words}


def body(*content, **more) -> dict:
    return {"model": "m", "messages": [{"role": "user", "content": list(content)}], **more}


def parse(data: dict):
    return parse_body(json.dumps(data).encode(), LIMITS)


def refusal(data: dict) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse(data)
    return caught.value


def test_a_request_becomes_a_chat():
    asked = parse(
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {
                    "role": "user",
                    "content": [text("a"), text("b"), picture(), text("c"), picture()],
                },
                {"role": "assistant", "content": "yes"},
                {"role": "user", "content": "more"},
            ],
            "max_completion_tokens": 7,
            "temperature": 0.5,
            "top_p": 0.25,
            "seed": -3,
            "stop": "end",
            "stream": True,
            "stream_options": {"include_usage": True},
            "user": "somebody",
            "n": 1,
            "presence_penalty": 0,
            "response_format": {"type": "text"},
            "tools": None,
        }
    )
    assert [turn.role for turn in asked.chat.turns] == ["system", "user", "assistant", "user"]
    assert asked.chat.turns[1].parts == ("ab", PicturePart(0), "c", PicturePart(1))
    assert asked.pictures == (PIXEL, PIXEL)
    assert asked.stream and asked.include_usage
    assert asked.chat.sampling == Sampling(
        max_tokens=7, temperature=0.5, top_p=0.25, seed=-3, stop=("end",)
    )


def test_what_is_left_out_has_defaults():
    asked = parse(body(text("a")))
    assert asked.chat.sampling == Sampling(max_tokens=LIMITS.max_tokens)
    assert not asked.stream and not asked.include_usage


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"best_of": 2}, "best_of", "unknown_parameter"),
        ({"n": 2}, "n", "unsupported_parameter"),
        ({"logprobs": True}, "logprobs", "unsupported_parameter"),
        ({"tools": [{}]}, "tools", "unsupported_parameter"),
        ({"frequency_penalty": 0.5}, "frequency_penalty", "unsupported_parameter"),
        ({"response_format": {"type": "json"}}, "response_format", "unsupported_parameter"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "bad_request"),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options", "unknown_parameter"),
        ({"stream": "yes"}, "stream", "bad_request"),
        ({"max_tokens": 101}, "max_tokens", "too_many_tokens"),
        ({"max_tokens": 0}, "max_tokens", "bad_request"),
        ({"max_tokens": True}, "max_tokens", "bad_request"),
        ({"max_tokens": 1, "max_completion_tokens": 1}, "max_completion_tokens", "bad_request"),
        ({"temperature": -0.1}, "temperature", "bad_request"),
        ({"temperature": float("nan")}, "temperature", "bad_request"),
        ({"temperature": "0"}, "temperature", "bad_request"),
        ({"top_p": 0}, "top_p", "bad_request"),
        ({"top_p": 1.5}, "top_p", "bad_request"),
        ({"seed": 1.5}, "seed", "bad_request"),
        ({"seed": 1 << 80}, "seed", "bad_request"),
        ({"stop": ["a"] * 5}, "stop", "bad_request"),
        ({"stop": [""]}, "stop", "bad_request"),
        ({"stop": 3}, "stop", "bad_request"),
        ({"model": ""}, "model", "bad_request"),
        ({"model": 4}, "model", "bad_request"),
        ({"messages": []}, "messages", "bad_request"),
        ({"messages": [{"role": "user"}]}, "messages[0]", "bad_request"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role", "bad_request"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages", "bad_request"),
        ({"messages": [{"role": [], "content": "x"}]}, "messages[0].role", "bad_request"),
        ({"messages": ["x"]}, "messages[0]", "bad_request"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(change, param, code):
    error = refusal(body(text("a"), **{}) | change)
    assert (error.status, error.param, error.code) == (400, param, code)
    assert error.body()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "content",
    [
        [picture(), picture(), picture()],
        [picture(detail="low")],
        [picture(colour=True)],
        [{"type": "audio"}],
        [{"type": "image_url", "image_url": "text"}],
        [{**text("a"), "cache": 1}],
        [3],
    ],
)
def test_contents_that_are_refused(content):
    assert refusal(body(*content)).status == 400


def test_only_the_user_shows_pictures():
    messages = [{"role": "system", "content": [picture()]}, {"role": "user", "content": "x"}]
    assert "messages of the user" in refusal(body() | {"messages": messages}).message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(["model", "messages", "stop", "stream", "temperature", "stream_options"]),
        json_values,
    )
)
def test_any_json_is_understood_or_refused(data):
    try:
        parse(data)
    except ApiError as error:
        assert error.status == 400


@given(st.binary(max_size=64))
def test_any_bytes_are_understood_or_refused(data):
    with pytest.raises(ApiError):
        parse_body(data, LIMITS)


def test_json_that_is_nested_too_deeply_is_refused():
    with pytest.raises(ApiError):
        parse_body(b"[" * 100_000, LIMITS)


# --- pictures ------------------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_a_data_url_gives_its_bytes(data):
    encoded = base64.b64encode(data).decode()
    assert decode_data_url(f"data:image/png;base64,{encoded}") == data
    assert decode_data_url(f"data:image/png;name=x;BASE64,{encoded}") == data


@pytest.mark.parametrize(
    "url",
    [
        "data:text/plain;base64,AAAA",
        "data:;base64,AAAA",
        "data:image/png,AAAA",
        "data:image/png;base64,A",
        "data:image/png;base64,AA*A",
        "data:image/png;base64,ÄÄÄÄ",
        "http://127.0.0.1/secret.png",
        "https://example.org/a.png",
        "ftp://a/b",
        "/etc/hostname",
        "",
    ],
)
def test_other_urls_are_refused(url, tmp_path):
    with pytest.raises(ApiError) as caught:
        store_pictures([url], tmp_path, root=tmp_path, max_bytes=100)
    assert caught.value.status == 400


@pytest.fixture
def shelf(tmp_path):
    """A root with a picture, and a secret beside it that several things lead to."""
    root, spool = tmp_path / "root", tmp_path / "spool"
    (root / "in ner").mkdir(parents=True)
    spool.mkdir()
    (root / "in ner" / "page.png").write_bytes(b"page")
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "root-but-not-it").mkdir()
    (tmp_path / "root-but-not-it" / "x").write_bytes(b"secret")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "up").symlink_to(tmp_path)
    (root / "good-link").symlink_to(root / "in ner" / "page.png")
    os.mkfifo(root / "pipe")
    return root, spool


@pytest.mark.parametrize("path", ["in%20ner/page.png", "good-link", "in%20ner/../good-link"])
def test_files_below_the_root_are_taken(shelf, path):
    root, spool = shelf
    (copy,) = store_pictures([f"file://{root}/{path}"], spool, root=root, max_bytes=100)
    assert copy.read_bytes() == b"page"


@pytest.mark.parametrize(
    "path",
    [
        *("link", "up/secret", "../secret", "%2e%2e/secret", "in%20ner/../../secret", "pipe"),
        *("missing", "", "in%20ner", "../root-but-not-it/x", "a%00b", "/etc/hostname"),
    ],
)
def test_nothing_else_is(shelf, path):
    root, spool = shelf
    with pytest.raises(ApiError) as caught:
        store_pictures([f"file://{root}/{path}"], spool, root=root, max_bytes=100)
    assert caught.value.status == 403
    assert "secret" not in caught.value.message
    assert not any(file.read_bytes() for file in spool.iterdir())


def test_files_need_a_root_and_have_a_size(shelf):
    root, spool = shelf
    url = f"file://{root}/good-link"
    with pytest.raises(ApiError, match="allowed-root"):
        store_pictures([url], spool, root=None, max_bytes=100)
    with pytest.raises(ApiError) as caught:
        store_pictures([url], spool, root=root, max_bytes=3)
    assert caught.value.status == 413
    with pytest.raises(ApiError):
        store_pictures([url.replace("file://", "file://host")], spool, root=root, max_bytes=100)


# --- who may ask ---------------------------------------------------------------------------------


def options(**more) -> ServeOptions:
    return ServeOptions(job=OcrOptions(inputs=()), **more)


def test_strangers_need_a_key():
    require_safe(options())
    require_safe(options(host="localhost"))
    require_safe(options(host="0.0.0.0", api_key="k"))
    assert is_loopback("127.8.0.1") and is_loopback("::1") and not is_loopback("0.0.0.0")
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        with pytest.raises(UsageError, match="API key"):
            require_safe(options(host=host))


def test_the_key_is_never_shown():
    assert "secret" not in repr(options(api_key="secret"))


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer ", "Bearer k", "Basic key", "key", "Bearer keyx", "Bearer ké"]
)
def test_a_wrong_key_is_refused(given):
    access = Access(options(api_key="key"))
    with pytest.raises(ApiError) as caught:
        access.check({"authorization": given})
    assert caught.value.status == 401
    assert caught.value.headers() == {"WWW-Authenticate": "Bearer"}
    access.check({"authorization": "bearer key"})


def test_without_a_key_only_local_names_are_answered():
    access = Access(options())
    for host in ("localhost:8000", "127.0.0.1", "[::1]:8000", "LOCALHOST"):
        access.check({"host": host})
    for host in ("evil.example:8000", "", "127.0.0.1.evil.example"):
        with pytest.raises(ApiError) as caught:
            access.check({"host": host})
        assert caught.value.status == 403
    assert host_name("[::1]:80") == "[::1]"


def test_bodies_must_say_that_they_are_json():
    require_json({"content-type": "application/json; charset=utf-8"})
    for kind in ("", "text/plain", "application/x-www-form-urlencoded"):
        with pytest.raises(ApiError) as caught:
            require_json({"content-type": kind})
        assert caught.value.status == 415
