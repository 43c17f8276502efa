"""The benchmark of page-reading models: both sides do the same work and say the same."""

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from command_line import RealCli

from vlmcli.bench import engine_pages
from vlmcli.bench.checkpoints import write_checkpoint
from vlmcli.bench.page_sides import run_ours, run_theirs
from vlmcli.bench.page_work import first_difference, page_work
from vlmcli.errors import ModelError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def in_here(work, *args, **options):
    """Instead of in a process of its own, which takes seconds to start."""
    return work(*args, **options)


def test_pages_and_answers_are_ragged_and_the_same_every_time():
    tasks, again = page_work(16, 20, 400), page_work(16, 20, 400)
    assert len({task.size for task in tasks}) == 16
    lengths = [task.num_tokens for task in tasks]
    assert len(set(lengths)) > 8 and 20 <= min(lengths) < 60 and 350 < max(lengths) <= 400
    for one, other in zip(tasks, again, strict=True):
        assert one.num_tokens == other.num_tokens and (one.picture == other.picture).all()


@pytest.mark.parametrize("name", engine_pages.RANDOM)
def test_both_sides_say_the_same(name, tmp_path):
    """Five pages of the quick model: alone, together, and in unequal batches of transformers."""
    path = write_quick(name, tmp_path)
    tasks = page_work(5, 6, 12)
    ours = run_ours(path, tasks, 1, together=True)
    assert [len(answer) for answer in ours.answers] == [task.num_tokens for task in tasks]
    beginnings = {answer[:6] for answer in ours.answers}
    assert len(beginnings) == len(tasks), "a lively model says something else of each page"
    assert len({len(prompt) for prompt in ours.prompts}) > 1
    assert run_ours(path, tasks[:2], 1, together=False).answers == ours.answers[:2]
    for batch_size in (1, 3):
        theirs = run_theirs(path, tasks, ours.prompts, 1, batch_size=batch_size)
        assert theirs.answers == ours.answers


def write_quick(name: str, folder: Path) -> Path:
    """The quick checkpoint, written in here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_pages, "apart", in_here)
        patch.setattr(engine_pages, "write_lively", partial(write_checkpoint, lively=True))
        return engine_pages.RANDOM[name](folder, True)


def test_a_difference_is_told_and_where(tmp_path, monkeypatch):
    """A side that says something else in one place of one page."""
    path = write_quick("random-smolvlm", tmp_path)

    def run_wrong(*args, batch_size, **options):
        done = run_theirs(*args, batch_size=batch_size, **options)
        if batch_size != 16:
            return done
        answers = [list(answer) for answer in done.answers]
        answers[3][1] ^= 1
        return replace(done, answers=tuple(map(tuple, answers)))

    monkeypatch.setattr(engine_pages, "apart", in_here)
    monkeypatch.setattr(engine_pages, "run_theirs", run_wrong)
    lines = []
    result = engine_pages.run(path, "tiny", quick=True, threads=1, say=lines.append)
    assert result["same_tokens"] is False
    assert result["parted"] == [{"run": "transformers, batches of 16", "page": 3, "token": 1}]
    assert "page 3 parts at token 1" in lines[-1]


def test_the_first_difference():
    assert first_difference([1, 2, 3], (1, 2, 3)) is None
    assert first_difference([1, 2, 3], [1, 4, 3]) == 1
    assert first_difference([1, 2], [1, 2, 3]) == 2


def test_what_has_no_family_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "unheard-of"}')
    with pytest.raises(ModelError, match="unheard-of"):
        engine_pages.run(tmp_path, "it", quick=True, threads=1, say=print)


@pytest.mark.slow
@pytest.mark.parametrize("model", [*engine_pages.RANDOM, "a directory"])
def test_the_command_measures_and_says_the_same(model, tmp_path):
    """Every run in a process of its own, as users have it."""
    if model == "a directory":
        model = str(write_quick("random-smolvlm", tmp_path / "model"))
    done = RealCli(tmp_path)("bench", "engine", "--model", model, "--quick")
    assert done.returncode == 0, done.stderr.decode()
    *lines, last = done.stdout.decode().splitlines()
    result = json.loads(last)
    assert result["same_tokens"] is True and result["parted"] == []
    runs = {run["name"]: run for run in result["runs"]}
    ours, alone = runs["vlmcli, 16 at once"], runs["vlmcli, one at a time"]
    assert ours["tokens"] == sum(result["output_tokens"])
    best = runs[f"transformers, batches of {result['best_batch']}"]
    theirs_alone = runs["transformers, one at a time"]
    for ratio, one, other in (
        ("ratio_ragged16", ours, best),
        ("ratio_single", alone, theirs_alone),
    ):
        rates = one["tokens_per_cpu_s"] / other["tokens_per_cpu_s"]
        assert result[ratio] == pytest.approx(rates, rel=0.05)
    peaks = ours["peak_rss_bytes"] / best["peak_rss_bytes"]
    assert result["rss_ratio"] == pytest.approx(peaks, abs=1e-3)
    assert len(lines) == 2 + len(runs)
