"""`--ray`: what is an address, and that one at which no cluster answers is named within seconds."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from vlmcli.cluster.address import parse_address, require_answer
from vlmcli.errors import ExitCode, UnreachableError, UsageError

SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


@contextmanager
def server(answer: bytes, *, hangs: bool = False) -> Iterator[str]:
    """Something at a port of this machine that says one thing to everybody."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        listener.settimeout(10)
        done = threading.Event()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 10)
                connection.sendall(answer)
                if hangs:
                    done.wait(10)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            done.set()
            thread.join()


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("local", "", 0),
        ("auto", "", 0),
        ("10.0.0.7:6379", "10.0.0.7", 6379),
        ("head-node.example:6379", "head-node.example", 6379),
        ("ray://head:10001", "head", 10001),
        ("[fd00::7]:6379", "fd00::7", 6379),
    ],
)
def test_addresses(text, host, port, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    address = parse_address(text)
    assert (address.text, address.host, address.port) == (text, host, port)
    assert address.is_local == (text == "local")


def test_auto_is_what_the_environment_says(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.7:6379")
    assert parse_address("auto").host == "10.0.0.7"
    assert parse_address("local").is_local


@pytest.mark.parametrize(
    "text", ["", "head", "head:", ":6379", "head:0", "head:99999", "http://head:6379", "a b:1"]
)
def test_what_is_no_address(text):
    with pytest.raises(UsageError, match="address of a Ray cluster"):
        parse_address(text)


def test_a_server_that_speaks_as_ray_does():
    with server(SETTINGS) as text:
        require_answer(parse_address(text), 5)


def test_other_servers_and_mute_ones_are_no_cluster():
    for answer in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b""):
        with server(answer) as text, pytest.raises(UnreachableError, match="not a Ray cluster"):
            require_answer(parse_address(text), 5)
    with (
        server(b"\x00", hangs=True) as text,
        pytest.raises(UnreachableError, match="no answer within"),
    ):
        require_answer(parse_address(text), 0.1)


def test_nobody_there():
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        text = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(UnreachableError, match="refused") as caught:
        require_answer(parse_address(text))
    assert caught.value.exit_code == ExitCode.UNREACHABLE and "ray start" in caught.value.remedy


def test_what_is_encrypted_needs_only_be_there(monkeypatch):
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        require_answer(parse_address(f"127.0.0.1:{listener.getsockname()[1]}"))
