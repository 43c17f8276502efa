"""`ocr --server`: pages read by a server that may be dead, busy, slow, broken, or endless."""

import json
import socket
import subprocess
import sys
import threading
import time

import pytest
from command_line import ROOT, RealCli, read_records, wait_for, without_history
from fake_openai import Asked, Fake, page_text, running, write_pages
from serving import serving

from vlmcli.engine.models.prompts import prompt_for
from vlmcli.errors import ExitCode

JOB = ("pages.pdf", "--dpi", "72", "--text-layer", "ignore", "-f", "jsonl")
LOOP = "and so on "


@pytest.fixture
def fake():
    with running(Fake()) as found:
        yield found


@pytest.fixture
def job(real, fake):
    """Reads the pages of a document, ten unless told otherwise, with the fake server."""

    class Job:
        folder = real.folder
        widths = write_pages(real.folder / "pages.pdf", 10)

        def __call__(self, *args: str, **more):
            return real("ocr", *JOB, "--server", fake.url, *args, **more)

        def pages(self, count: int) -> list[int]:
            self.widths = write_pages(real.folder / "pages.pdf", count)
            return self.widths

        def records(self, *args: str, code: int = 0, **more) -> list[dict]:
            done = self(*args, **more)
            assert done.returncode == code, done.stderr.decode()
            return read_records(done.stdout)

    return Job()


def texts(records: list[dict]) -> list[str]:
    return [record["text"] for record in records]


def expected(widths) -> list[str]:
    return [f"page of width {width}" for width in widths]


# --- a server in good order ----------------------------------------------------------------------


def test_pages_come_back_in_order_and_never_too_many_are_out(job, fake):
    def answer(handler, asked: Asked) -> str:
        time.sleep(0.02 * (asked.width % 3))
        return page_text(asked)

    fake.answer = answer
    records = job.records("--server-concurrency", "3", "--stats", "stats.json")
    assert texts(records) == expected(job.widths)
    assert fake.widths() == job.widths
    assert 2 <= fake.most_in_flight <= 3
    place = fake.url.removeprefix("http://")
    for record in records:
        assert (record["model"], record["source"]) == (f"fake@{place}", "model")
        assert record["tokens"]["prompt"] == 7 and record["tokens"]["output"] == 4
        assert record["attempts"] == 1 and record["seconds"]["prefill"] > 0
    stats = json.loads((job.folder / "stats.json").read_text())
    assert stats["server_requests"] == 10
    assert 0 < stats["memory_planned_bytes"] < stats["memory_cap_bytes"]


def test_what_the_server_is_sent(job, fake):
    job.pages(1)
    job.records("--server-prompt", "What is it?", "--max-tokens", "77", "--retries", "0")
    (asked,) = fake.asked
    (message,) = asked.data.pop("messages")
    assert message["content"] == [{"type": "text", "text": "What is it?"}]
    assert asked.data == {
        "model": "fake",
        "max_tokens": 77,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert "Authorization" not in asked.headers
    job.records("--server-image", "jpeg", "--no-cache")
    assert fake.asked[-1].width == 0, "not a PNG"


def test_a_task_is_asked_for_in_general_words_and_the_answer_is_without_a_fence(job, fake):
    job.pages(1)
    fake.answer = lambda handler, asked: "```markdown\n# A heading\n```"
    (record,) = job.records("--task", "markdown")
    (message,) = fake.asked[-1].data["messages"]
    (words,) = [part["text"] for part in message["content"] if part["type"] == "text"]
    assert words == prompt_for("", "markdown")
    assert record["text"] == "# A heading"


def test_neither_torch_nor_a_model_is_loaded(job, fake):
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'tokenizers'): sys.modules[name] = None\n"
        f"sys.argv = ['vlmcli', 'ocr', *{JOB!r}, '--server', {fake.url!r}]\n"
        "from vlmcli.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=job.folder,
        env=RealCli(job.folder).environment(),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert texts(read_records(done.stdout)) == expected(job.widths)


def test_an_answer_that_is_not_streamed_and_one_that_was_cut(job, fake):
    widths = job.pages(2)

    def answer(handler, asked: Asked) -> None:
        if asked.width == widths[1]:
            handler.stream("cut her", finish="length")
            return
        message = {"role": "assistant", "content": " all at once \n"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        handler.whole(200, {"choices": [choice], "usage": {"prompt_tokens": 3}})

    fake.answer = answer
    whole, cut = job.records()
    assert (whole["text"], whole["suspect"]) == ("all at once", [])
    assert (cut["text"], cut["suspect"], cut["status"]) == ("cut her", ["truncated"], "ok")


@pytest.mark.slow
def test_the_models_name(job, fake):
    job.pages(1)
    fake.models = ("one", "two")
    refused = job()
    assert refused.returncode == ExitCode.MODEL
    assert b"--model: one, two" in refused.stderr and not fake.asked
    assert job.records("-m", "two")[0]["model"].startswith("two@")
    assert b"no model 'three'" in job("-m", "three", "--overwrite").stderr
    fake.models = ("one", "nano")
    assert job.records()[0]["model"].startswith("nano@")
    fake.models = (404, b"no such route")
    assert job().returncode == ExitCode.MODEL
    assert job.records("-m", "three")[0]["model"].startswith("three@")


@pytest.mark.parametrize("path", ["", "/v1", "/v2", "/openai", "/v1/typo"])
def test_a_path_where_no_models_are_may_be_a_wrong_one(job, fake, path):
    job.pages(1)
    fake.models = (404, b"no such route")
    done = job("--server", f"{fake.url}{path}")
    assert done.returncode == ExitCode.MODEL
    assert b"name one with --model" in done.stderr
    looks_wrong = path not in ("", "/v1")
    assert (b"correct the path of --server" in done.stderr) == looks_wrong
    assert f"{fake.url}{path or '/v1'} does not list".encode() in done.stderr


def test_questions(real, fake):
    write_pages(real.folder / "pages.pdf", 2)
    fake.answer = lambda handler, asked: (
        f"{asked.data['messages'][0]['content'][0]['text']} {asked.width}"
    )
    args = ("pages.pdf", "--dpi", "72", "-f", "jsonl", "-q", "Who?", "-q", "Why?")
    done = real("ask", *args, "--server", fake.url)
    assert done.returncode == 0, done.stderr
    first, second = read_records(done.stdout)
    assert [answer["text"] for answer in first["answers"]] == ["Who? 200", "Why? 200"]
    assert [answer["question"] for answer in second["answers"]] == ["Who?", "Why?"]


# --- nobody there --------------------------------------------------------------------------------


def test_a_dead_server_is_named_before_anything_is_done(job, fake):
    fake.stop()
    done = job("-o", "out.jsonl", timeout=30)
    assert done.returncode == ExitCode.UNREACHABLE
    assert f"no server answers at {fake.url}/v1".encode() in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert not (job.folder / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ((502, b"<html>bad gateway</html>"), b"502"),
        ((503, {"error": {"message": "loading"}}), b"503"),
        ((401, {"error": {"message": "no"}}), b"VLMCLI_SERVER_API_KEY"),
        ((200, b"<html>log in first</html>"), b"no OpenAI-compatible server"),
        ((200, {"hello": "world"}), b"no OpenAI-compatible server"),
    ],
)
def test_something_else_is_there(job, fake, models, words):
    fake.models = models
    done = job()
    assert done.returncode == ExitCode.UNREACHABLE
    assert words in done.stderr and fake.url.encode() in done.stderr
    assert done.stdout == b"" and b"Traceback" not in done.stderr


def test_a_server_that_is_not_needed_is_not_asked(job, fake):
    fake.stop()
    records = read_records(job("--text-layer", "only").stdout)
    assert len(records) == 10 and all("width of" in text for text in texts(records))


def test_a_server_that_dies_costs_the_pages_that_are_left(job, fake):
    def answer(handler, asked: Asked) -> str:
        if asked.width == job.widths[3]:
            threading.Thread(target=fake.stop).start()
            time.sleep(0.2)
            handler.connection.shutdown(socket.SHUT_RDWR)
            return None
        return page_text(asked)

    fake.answer = answer
    args = ("--server-concurrency", "1", "--retries", "1")
    records = job.records(*args, code=ExitCode.PARTIAL)
    assert [record["page"] for record in records] == list(range(1, 11))
    assert texts(records) == expected(job.widths[:3]) + [""] * 7
    assert {record["status"] for record in records[3:]} == {"error"}
    assert {record["error"]["code"] for record in records[3:]} == {"unreachable"}
    assert all(fake.url in record["error"]["message"] for record in records[3:])


# --- busy, slow, broken --------------------------------------------------------------------------


def test_a_storm_of_429_is_waited_out(job, fake):
    def answer(handler, asked: Asked) -> str | None:
        if asked.number <= 2:
            body = {"error": {"message": "slow down"}}
            handler.whole(429 if asked.number == 1 else 503, body, Retry_After="0")
            return None
        return page_text(asked)

    fake.answer = answer
    records = job.records("--stats", "stats.json", "--retries", "0")
    assert texts(records) == expected(job.widths)
    assert len(fake.asked) == 30
    stats = json.loads((job.folder / "stats.json").read_text())
    assert stats["server_retries_busy"] == 20


def test_a_slow_page_runs_out_of_time_and_its_connection_is_closed(job, fake):
    widths, gone = job.pages(4), []

    def answer(handler, asked: Asked) -> str | None:
        if asked.width not in widths[1:3]:
            return page_text(asked)
        handler.begin()
        try:
            while True:
                handler.wfile.write(b": still thinking\n\n")
                time.sleep(0.05)
        except OSError:
            gone.append(asked.width)
        return None

    fake.answer = answer
    records = job.records("--page-timeout", "1.5", code=ExitCode.PARTIAL)
    assert [record["status"] for record in records] == ["ok", "timeout", "timeout", "ok"]
    assert texts(records) == ["page of width 200", "", "", "page of width 260"]
    assert records[1]["error"]["code"] == "timeout"
    wait_for(lambda: len(gone) >= 2, seconds=10)
    assert sorted(gone) == widths[1:3]


def test_faults_that_pass_and_faults_that_stay(job, fake):
    widths = job.pages(6)

    def answer(handler, asked: Asked) -> str | None:
        kind = widths.index(asked.width)
        if kind == 0 and asked.number == 1:
            handler.whole(500, {"error": {"message": "oops"}})
        elif kind == 1 and asked.number == 1:
            handler.stream("half of it", finish=None)
        elif kind == 2 and asked.number == 1:
            handler.begin()
            handler.event({"error": {"message": "out of memory"}})
        elif kind == 3:
            handler.whole(500, b"always\nbroken")
        elif kind == 4:
            handler.whole(400, {"error": {"message": "too many tokens"}})
        elif kind == 5 and asked.number == 1:
            handler.whole(200, b"no json", Content_Type="application/json")
        else:
            return page_text(asked)
        return None

    fake.answer = answer
    records = job.records("--retries", "1", code=ExitCode.PARTIAL)
    good = [*expected(widths[:3]), "", "", *expected(widths[5:])]
    assert texts(records) == good
    assert [record["status"] for record in records] == ["ok"] * 3 + ["error"] * 2 + ["ok"]
    assert "500: always broken" in records[3]["error"]["message"]
    assert "400: too many tokens" in records[4]["error"]["message"]
    assert {records[3]["error"]["code"], records[4]["error"]["code"]} == {"server"}
    assert fake.widths() == sorted([*widths[:4] * 2, widths[4], widths[5], widths[5]])


# --- loops ---------------------------------------------------------------------------------------


def test_a_loop_is_cut_off_where_it_begins_and_read_again_warmer(job, fake):
    widths, written = job.pages(2), []

    def answer(handler, asked: Asked) -> str | None:
        if asked.width == widths[0] and asked.data["temperature"] > 0:
            return page_text(asked)
        handler.begin()
        handler.event({"choices": [{"index": 0, "delta": {"content": "It begins well. "}}]})
        count = 0
        try:
            while count < 100_000:
                handler.event({"choices": [{"index": 0, "delta": {"content": LOOP}}]})
                count += 1
                if count % 50 == 0:
                    time.sleep(0.05)
        except OSError:
            pass
        written.append(count)
        return None

    fake.answer = answer
    good, looped = job.records("--retries", "1", code=ExitCode.PARTIAL)
    assert (good["status"], good["text"], good["attempts"]) == ("ok", "page of width 200", 2)
    assert (looped["status"], looped["attempts"]) == ("looped", 2)
    assert looped["text"] == "It begins well. and so on"
    wait_for(lambda: len(written) >= 3, seconds=10)
    assert len(written) == 3 and max(written) < 50_000, "the server went on to the end"
    temperatures = [(asked.data["temperature"], asked.data.get("seed")) for asked in fake.asked]
    assert sorted(temperatures, key=str) == [(0.0, None), (0.0, None), (0.3, 2), (0.3, 2)]


def test_a_table_of_equal_cells_is_no_loop(job, fake):
    job.pages(1)
    table = "| 0.00 | 0.00 |\n" * 60
    fake.answer = lambda handler, asked: table
    (record,) = job.records()
    assert (record["status"], record["text"], record["attempts"]) == ("ok", table.strip(), 1)


# --- what is kept, and what is not ---------------------------------------------------------------


def test_the_key_is_sent_and_stays_secret(job, fake):
    widths, key = job.pages(3), "sk-very-secret"

    def answer(handler, asked: Asked) -> str | None:
        if asked.width == widths[1]:
            words = f"bad key {asked.headers['Authorization']}"
            handler.whole(400, {"error": {"message": words}})
            return None
        return page_text(asked)

    fake.answer = answer
    cache = job.folder / "cache"
    env = {"VLMCLI_SERVER_API_KEY": key, "OPENAI_API_KEY": "other", "VLMCLI_CACHE_DIR": str(cache)}
    done = job("-o", "out.jsonl", "--stats", "stats.json", "-vv", "--progress", "json", env=env)
    assert done.returncode == ExitCode.PARTIAL
    assert {asked.headers["Authorization"] for asked in fake.asked} == {f"Bearer {key}"}
    assert b"***" in (job.folder / "out.jsonl").read_bytes()
    for data in (
        done.stdout,
        done.stderr,
        *(path.read_bytes() for path in job.folder.rglob("*") if path.is_file()),
    ):
        assert key.encode() not in data
    env = {"OPENAI_API_KEY": "other"}
    job("--no-cache", env=env)
    assert fake.asked[-1].headers["Authorization"] == "Bearer other"


def test_a_killed_job_goes_on_and_asks_for_no_finished_page_again(job, fake, real):
    reached = threading.Event()
    is_open = threading.Event()

    def answer(handler, asked: Asked) -> str:
        if asked.width == job.widths[6] and not is_open.is_set():
            reached.set()
            is_open.wait(30)
        return page_text(asked)

    fake.answer = answer
    args = ("--server", fake.url, "--server-concurrency", "1", "-o", "out.jsonl", "--no-cache")
    started = real.start("ocr", *JOB, *args)
    assert reached.wait(60)
    # The record before it is written before the next page is waited for.
    out = job.folder / "out.jsonl"
    wait_for(lambda: out.read_bytes().count(b"\n") >= 6, seconds=30)
    started.kill()
    started.communicate()
    is_open.set()
    asked = len(fake.asked)
    other = real("ocr", *JOB, *args, "--resume", "--server-prompt", "Other?")
    assert other.returncode == ExitCode.OUTPUT and b"--server-prompt changed" in other.stderr
    done = real("ocr", *JOB, *args, "--resume")
    assert done.returncode == 0, done.stderr
    assert sorted(one.width for one in fake.asked[asked:]) == job.widths[6:]
    resumed = read_records((job.folder / "out.jsonl").read_bytes())
    assert without_history(resumed) == without_history(job.records("--no-cache"))


@pytest.mark.slow
def test_results_are_kept_by_server_model_and_prompt(job, fake):
    env = {"VLMCLI_CACHE_DIR": str(job.folder / "cache")}
    count = 0
    for args, is_asked in (
        ((), True),
        (("--server-prompt", "Other?"), True),
        ((), False),
        (("-m", "second"), True),
        (("--server-image", "jpeg"), True),
    ):
        fake.models = ("second",) if "second" in args else ("fake",)
        records = job.records(*args, env=env)
        assert len(fake.asked) - count == (10 if is_asked else 0), args
        assert [record["source"] for record in records] == ["model" if is_asked else "reuse"] * 10
        count = len(fake.asked)


def test_equal_pages_are_asked_about_once_and_drafts_are_not_lent(real, fake):
    write_pages(real.folder / "one.pdf", 2)
    (real.folder / "two.pdf").write_bytes((real.folder / "one.pdf").read_bytes())
    args = ("one.pdf", "two.pdf", *JOB[1:], "--server", fake.url)
    records = real.records(*args)
    assert len(fake.asked) == 2
    assert [record["reuse"]["kind"] for record in records] == ["none"] * 2 + ["exact"] * 2


# --- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--server-prompt", "x"), "needs --server"),
        (("--server-concurrency", "2"), "needs --server"),
        (("--server", "http://a", "--device", "cpu"), "on this machine"),
        (("--server", "http://a", "--dtype", "float32"), "on this machine"),
        (("--server", "ftp://a"), "not a server's URL"),
        (("--server", "127.0.0.1:8000"), "not a server's URL"),
        (("--server", "http://user:pass@a/v1"), "no password"),
        (("--server", "http://a/v1?key=abc"), "no password"),
    ],
)
def test_options_that_contradict_each_other(real, args, words):
    write_pages(real.folder / "pages.pdf", 1)
    done = real("ocr", *JOB, *args)
    assert done.returncode == ExitCode.USAGE
    assert words in done.stderr.decode() and b"pass@" not in done.stderr


# --- our own server ------------------------------------------------------------------------------


def test_our_own_server_reads_what_local_reading_reads(real):
    names = ("scan.pdf", "blank-middle.pdf")
    args = (*(str(ROOT / "samples" / name) for name in names), "--text-layer", "ignore")
    local = real.records(*args)
    with serving(real.folder, "--max-queue", "2") as server:
        remote = real.records(*args, "--server", server.url, "--server-concurrency", "4")
        assert texts(remote) == texts(local)
        assert [r["status"] for r in remote] == [r["status"] for r in local]
        assert {r["model"] for r in remote} == {f"nano@{server.address}", None}
