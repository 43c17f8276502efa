"""`vlmcli serve` as clients see it: local reading's text, OpenAI's shapes, limits, its end."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
import psutil
import pymupdf
import pytest
from command_line import ROOT, RealCli, wait_for
from PIL import Image
from serving import content, data_url, pieces, question, serving, start

LIMITS = ("--max-body", "2MiB", "--max-images", "3", "--max-pixels", "4000000")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pictures: two pages, a blank one, a large one, a broken one, a multi-page TIFF, a PDF,
    and one in other formats."""
    folder = tmp_path_factory.mktemp("pictures")
    for name, sample, number in (("scan", "scan.pdf", 0), ("word", "pages-1-to-17.pdf", 2)):
        with pymupdf.open(ROOT / "samples" / sample) as document:
            document[number].get_pixmap(dpi=130).save(folder / f"{name}.png")
    Image.fromarray(np.full((300, 200), 255, np.uint8)).save(folder / "blank.png")
    Image.fromarray(np.zeros((2100, 2000), np.uint8)).save(folder / "large.png")
    page = Image.open(folder / "word.png").convert("L")
    page.save(folder / "two.tif", save_all=True, append_images=[page], compression="tiff_lzw")
    page.save(folder / "word.jp2")
    page.save(folder / "word.avif")
    (folder / "broken.png").write_bytes((folder / "scan.png").read_bytes()[:400])
    shutil.copy(ROOT / "samples" / "blank-middle.pdf", folder / "some.pdf")
    (folder / "root").mkdir()
    page.save(folder / "root" / "word.bmp")
    shutil.copy(folder / "word.png", folder / "root" / "word.png")
    return folder


@pytest.fixture(scope="module")
def local(folder) -> dict[str, str]:
    """What local reading makes of the pictures."""
    names = [str(folder / f"{name}.png") for name in ("scan", "word", "blank")]
    records = RealCli(folder).records(*names)
    return dict(zip(("scan", "word", "blank"), (r["text"] for r in records), strict=True))


@pytest.fixture(scope="module")
def server(folder):
    with serving(folder, *LIMITS, "--allowed-root", str(folder / "root")) as running:
        yield running


def test_a_picture_has_the_text_that_local_reading_gives(server, folder, local):
    assert len(local["scan"]) > 100 and local["word"]
    for name, expected in local.items():
        status, answer, _ = server.read(folder / f"{name}.png")
        assert (status, content(answer)) == (200, expected)
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert answer["object"] == "chat.completion" and answer["model"] == "nano"


def test_several_pictures_are_several_pages(server, folder, local):
    names = ("word", "blank", "scan")
    status, answer, _ = server.read(*(folder / f"{name}.png" for name in names))
    assert (status, content(answer)) == (200, "\f".join(local[name] for name in names))
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 300


def test_a_bmp_is_the_same_picture(server, folder, local):
    status, answer, _ = server.post(question(f"file://{folder}/root/word.bmp"))
    assert status == 200
    assert content(answer) == local["word"]


def test_a_file_below_the_allowed_root(server, folder, local):
    url = f"file://{folder}/root/word.png"
    assert content(server.post(question(url))[1]) == local["word"]
    status, answer, _ = server.post(question(f"file://{folder}/root/../scan.png"))
    assert (status, answer["error"]["code"]) == (403, "file_not_allowed")


def test_requests_at_once_are_answered_as_one_by_one(server, folder, local):
    found: list[tuple[str, str]] = []

    def ask(name: str) -> None:
        found.append((name, content(server.read(folder / f"{name}.png")[1])))

    threads = [threading.Thread(target=ask, args=(name,)) for name in [*local] * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted([*local.items()] * 3)


def test_an_answer_is_cut_at_its_limit(server, folder, local):
    _, answer, _ = server.read(folder / "scan.png", max_tokens=20)
    assert content(answer) == local["scan"][:20]
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("large.png", "too-large"),
        ("broken.png", "damaged"),
        ("two.tif", "not-a-picture"),
        ("some.pdf", "not-a-picture"),
        ("word.jp2", "not-a-picture"),
        ("word.avif", "not-a-picture"),
    ],
)
def test_pictures_that_are_refused_cost_themselves_alone(server, folder, local, name, code):
    status, answer, _ = server.read(folder / name)
    assert (status, answer["error"]["code"]) == (400, code)
    assert str(folder) not in answer["error"]["message"]
    assert content(server.read(folder / "word.png")[1]) == local["word"]


def test_limits_and_what_the_model_cannot_do(server, folder):
    small = data_url(folder / "blank.png")
    cases = [
        (question(*[small] * 4), 400, "too_many_images"),
        (question(small, max_tokens=5000), 400, "too_many_tokens"),
        (question(small, temperature=0.5), 400, "usage"),
        (question(small, stop="x"), 400, "usage"),
        (question(), 400, "usage"),
        (question(small, seed=1, temperature=0, top_p=0.5), 200, None),
        (question(small) | {"model": "gpt"}, 404, "model_not_found"),
        (question(small, words="x" * (2 << 20)), 413, "too_large"),
        (b"{", 400, "invalid_json"),
    ]
    for data, expected, code in cases:
        status, answer, _ = server.post(data)
        assert (status, answer.get("error", {}).get("code")) == (expected, code)


def test_bodies_without_a_length_are_limited_too(server):
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        piece = b"%x\r\n%s\r\n" % (1 << 18, b" " * (1 << 18))
        try:
            for _ in range(40):
                connection.sendall(piece)
        except OSError:
            pass
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_other_routes_names_and_types(server):
    status, answer = server.get("/v1/models")
    (model,) = json.loads(answer)["data"]
    assert (status, model["id"]) == (200, "nano") and model["revision"].startswith("nano@")
    assert json.loads(server.get("/health")[1])["status"] == "ok"
    assert server.get("/v1/nothing")[0] == 404
    assert server.get("/v1/chat/completions")[0] == 405
    assert server.get("/v1/models", Host="evil.example")[0] == 403
    assert server.post(question(), **{"Content-Type": "text/plain"})[0] == 415


def test_figures(server, folder):
    server.read(folder / "word.png")
    text = server.get("/metrics")[1].decode()
    figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    assert float(figures['vlmcli_requests_total{status="200"}']) >= 1
    assert float(figures["vlmcli_completion_tokens_total"]) > 0
    assert float(figures["vlmcli_requests_unfinished"]) == 0
    assert float(figures["vlmcli_engine_memory_planned_bytes"]) > 1 << 20


def test_curl(server, folder, local):
    if shutil.which("curl") is None:
        pytest.skip("no curl here")
    for stream in (False, True):
        data = question(data_url(folder / "word.png"), stream=stream)
        (folder / "ask.json").write_text(json.dumps(data))
        done = subprocess.run(
            [
                *("curl", "-sSfN", "--noproxy", "*", f"{server.url}/v1/chat/completions"),
                *("-H", "Content-Type: application/json", "-d", f"@{folder / 'ask.json'}"),
            ],
            capture_output=True,
            timeout=120,
            check=True,
        )
        if not stream:
            assert content(json.loads(done.stdout)) == local["word"]
            continue
        chunks = pieces(done.stdout)
        deltas = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
        assert "".join(deltas) == local["word"]


def test_the_openai_client(server, folder, local):
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["nano"]
        asked = question(data_url(folder / "scan.png"), data_url(folder / "word.png"))
        expected = f"{local['scan']}\f{local['word']}"
        whole = client.chat.completions.create(**asked)
        assert whole.choices[0].message.content == expected
        chunks = list(
            client.chat.completions.create(
                **asked, stream=True, stream_options={"include_usage": True}
            )
        )
        texts = [c.choices[0].delta.content for c in chunks if c.choices]
        assert "".join(text or "" for text in texts) == expected
        assert chunks[-1].usage == whole.usage
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**asked, n=3)
        assert (caught.value.param, caught.value.code) == ("n", "unsupported_parameter")


# --- servers of their own ------------------------------------------------------------------------


def test_a_full_queue_says_when_to_come_back_and_an_abandoned_request_makes_room(folder, local):
    with serving(folder, "--max-queue", "1") as server:
        host, _, port = server.address.rpartition(":")
        body = json.dumps(question(data_url(folder / "scan.png"))).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + body[:-1])
            deadline = time.monotonic() + 60
            while (refused := server.read(folder / "word.png"))[0] != 429:
                assert time.monotonic() < deadline, "the seat is never taken"
            _, answer, headers = refused
            assert answer["error"]["type"] == "rate_limit_error"
            assert int(headers["Retry-After"]) >= 1
            connection.sendall(body[-1:])
        # The client has gone with its request in work: its seat comes free.
        while (found := server.read(folder / "word.png"))[0] == 429:
            assert time.monotonic() < deadline, "the seat is never given back"
        assert content(found[1]) == local["word"]
        figures = server.get("/metrics")[1].decode()
        assert 'vlmcli_requests_total{status="499"} 1.0' in figures
        assert 'vlmcli_requests_total{status="429"}' in figures


def test_a_key_opens_what_is_closed_without(folder):
    (folder / "key").write_text("sesame\n")
    env = {"VLMCLI_API_KEY": "other"}
    with serving(folder, "--api-key-file", "key", "--host", "0.0.0.0", env=env) as server:
        server.url = server.url.replace("0.0.0.0", "127.0.0.1")
        for path in ("/v1/models", "/metrics"):
            assert server.get(path)[0] == 401
            assert server.get(path, Authorization="Bearer other")[0] == 401
            assert server.get(path, Authorization="Bearer sesame")[0] == 200
        assert server.post(question())[0] == 401
        assert server.get("/health")[0] == 200
        _, said = server.end()
        assert b"sesame" not in said


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)],
)
def test_running_requests_are_answered_before_the_end(folder, local, number, code):
    with serving(folder) as server:
        found = []
        asking = threading.Thread(
            target=lambda: found.append(server.read(*[folder / "scan.png"] * 6))
        )
        asking.start()
        wait_for(lambda: b"unfinished 1.0" in server.get("/metrics")[1])
        ended, said = server.end(number)
        asking.join()
        assert ended == code
        assert b"Traceback" not in said
        assert content(found[0][1]) == "\f".join([local["scan"]] * 6)
        with pytest.raises(OSError):
            server.get("/health")


@pytest.mark.slow
def test_what_does_not_end_in_time_is_told_so(folder):
    with serving(folder, "--drain", "0") as server:
        found = []
        asking = threading.Thread(
            target=lambda: found.append(server.read(*[folder / "scan.png"] * 12))
        )
        asking.start()
        wait_for(lambda: b"unfinished 1.0" in server.get("/metrics")[1])
        code, said = server.end()
        asking.join()
        assert code == 143 and b"Traceback" not in said
        status, answer, headers = found[0]
        assert (status, answer["error"]["code"]) == (503, "busy") and headers["Retry-After"]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("--host", "0.0.0.0"), 2, b"--api-key-file"),
        (("--allowed-root", "scan.png"), 2, b"no folder"),
        (
            ("--max-memory", "500MiB", "--max-queue", "7", "--max-body", "31MiB"),
            6,
            b"    vlmcli serve --port 0 --max-body 32505856 --max-queue 7 --threads 1",
        ),
        (("--model", "nowhere"), 7, b"model not found"),
        (("--host", "no such host"), 2, b"no such host"),
        (("--api-key-file", "nowhere"), 3, b"no such key file"),
    ],
)
def test_servers_that_do_not_start(folder, args, code, words):
    process = start(folder, *args)
    _, said = process.communicate(timeout=120)
    assert process.returncode == code, said
    assert words in said and b"Traceback" not in said


def test_a_port_that_is_taken(folder, server):
    port = server.address.rpartition(":")[2]
    process = start(folder, "--port", port)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2 and b"--port" in said


def test_without_the_extra_the_command_says_what_to_install(folder):
    code = (
        "import sys; sys.modules['fastapi'] = None; sys.argv = ['vlmcli', 'serve'];"
        "from vlmcli.__main__ import main; main()"
    )
    cli = RealCli(folder)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=cli.environment(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert b"pip install 'vlmcli[serve]'" in done.stderr and b"Traceback" not in done.stderr


def test_a_killed_worker_costs_no_later_request_and_nothing_stays_on_disk(folder, local, tmp_path):
    with serving(folder, env={"TMPDIR": str(tmp_path)}) as server:
        assert server.read(folder / "broken.png")[0] == 400
        for worker in psutil.Process(server.process.pid).children():
            worker.kill()
        assert content(server.read(folder / "word.png")[1]) == local["word"]
        (spool,) = tmp_path.glob("vlmcli-*")
        assert not list(spool.iterdir())
        server.end()
    assert not list(tmp_path.glob("vlmcli-*"))


def test_a_stream_that_nobody_reads_to_its_end_is_given_up(server, folder):
    request = server.asking(question(*[data_url(folder / "scan.png")] * 3, stream=True))
    with urllib.request.urlopen(request, timeout=120) as answer:
        assert answer.readline().startswith(b"data: ")
    wait_for(lambda: b"vlmcli_requests_unfinished 0.0" in server.get("/metrics")[1], seconds=60)
