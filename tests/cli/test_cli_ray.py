"""Read by a Ray cluster of two workers on this machine: the same records, whoever is killed.

Needs the extra `ray`, which the suite does not bring: it is 250 MB large and takes some seconds for
every cluster that is started. `pip install -e '.[test,ray]'` has these tests run with all others.
"""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from command_line import RealCli, journaled, read_records, wait_for, without_seconds
from real_documents import write_pages

pytest.importorskip("ray")

NUM_PAGES = 40
READ = ("ocr", "scan.pdf", "--no-cache", "-f", "jsonl")
TWO = ("--ray-workers", "2")
CLUSTER = """
import sys
import ray
ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=128 << 20,
         log_to_driver=False, _temp_dir=sys.argv[1])
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


class RayCli(RealCli):
    """The command line, with a token for clusters that is not the user's."""

    def environment(self, fake=None, **more):
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64, "OMP_NUM_THREADS": "1"}
        return super().environment(fake, **token, RAY_USAGE_STATS_ENABLED="0", **more)


@pytest.fixture(scope="module")
def scan(tmp_path_factory):
    """A folder with a scan of some pages, and what is read in it without a cluster."""
    cli = RayCli(tmp_path_factory.mktemp("scan"))
    write_pages(cli.folder / "scan.pdf", range(NUM_PAGES))
    done = cli(*READ, "-o", "plain.jsonl")
    assert done.returncode == 0, done.stderr
    return cli


@pytest.fixture(scope="module")
def cluster(scan, tmp_path_factory):
    """The address of a cluster of two processors, and its process."""
    # Ray makes sockets there, whose names may not be long.
    folder = tmp_path_factory.mktemp("ray") if sys.platform != "linux" else f"/tmp/r{os.getpid()}"
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER, str(folder)],
        env=scan.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    yield process.stdout.readline().strip(), psutil.Process(process.pid)
    process.stdin.close()
    process.stdout.close()
    process.wait(60)
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def plain(scan) -> list[dict]:
    return without_seconds(read_records((scan.folder / "plain.jsonl").read_bytes()))


def reading_worker(process: psutil.Process) -> psutil.Process | None:
    """A worker of the cluster that is reading now."""
    for child in process.children(recursive=True):
        try:
            if child.cmdline()[:1] == ["ray::Worker.advance"]:
                return child
        except psutil.Error:
            continue
    return None


def test_the_records_are_those_of_a_job_without_a_cluster(scan, cluster):
    done = scan(*READ, "--ray", cluster[0], *TWO, "--stats", "stats.json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    assert without_seconds(read_records(done.stdout)) == plain(scan)
    stats = json.loads((scan.folder / "stats.json").read_text())
    assert stats["cluster_workers_lost"] == 0 and stats["crops_read"] > 0
    assert 1 <= stats["cluster_workers"] <= 2


def test_a_worker_that_is_killed_costs_no_page(scan, cluster):
    address, process = cluster
    job = scan.start(*READ, "--ray", address, *TWO, "-o", "killed.jsonl", "--stats", "killed.json")
    assert wait_for(lambda: journaled(scan.folder / "killed.jsonl") > 0, job)
    victim = wait_for(lambda: reading_worker(process), job)
    assert victim is not None, "the job was done before a worker could be killed"
    victim.kill()
    stdout, stderr = job.communicate(timeout=240)
    assert (job.returncode, stdout) == (0, b"")
    assert stderr.startswith(b"vlmcli: warning: a worker of the cluster is lost")
    assert stderr.count(b"\n") == 1
    records = read_records((scan.folder / "killed.jsonl").read_bytes())
    assert without_seconds(records) == plain(scan)
    assert json.loads((scan.folder / "killed.json").read_text())["cluster_workers_lost"] == 1


def test_ctrl_c_ends_the_job_and_the_cluster_that_it_started(scan):
    job = scan.start(*READ, "--ray", "local", *TWO, "-o", "cut.jsonl")
    assert wait_for(lambda: journaled(scan.folder / "cut.jsonl") > 0, job)
    children = psutil.Process(job.pid).children(recursive=True)
    job.send_signal(signal.SIGINT)
    stdout, stderr = job.communicate(timeout=60)
    assert (job.returncode, stdout) == (130, b"")
    assert stderr == b"vlmcli: interrupted; run the same command with --resume to go on\n"
    assert len(children) > 3
    _, left = psutil.wait_procs(children, timeout=20)
    assert not [process for process in left if process.status() != psutil.STATUS_ZOMBIE]
    done = scan(*READ, "-o", "cut.jsonl", "--resume")
    assert done.returncode == 0, done.stderr
    records = read_records((scan.folder / "cut.jsonl").read_bytes())
    assert without_seconds(records) == plain(scan)


def test_no_cluster_there(scan):
    started = time.monotonic()
    done = scan(*READ, "--ray", "127.0.0.1:9", "-o", "never.jsonl")
    assert done.returncode == 9 and time.monotonic() - started < 60
    assert b"no Ray cluster at 127.0.0.1:9" in done.stderr and done.stderr.count(b"\n") == 1
    assert not list(scan.folder.glob("never.jsonl*"))


def test_a_cap_below_what_a_worker_takes(scan, cluster):
    done = scan(*READ, "--ray", cluster[0], *TWO, "--max-memory", "200MiB")
    assert done.returncode == 6 and done.stdout == b""
    assert b"for each of 2 workers" in done.stderr and b"--max-memory" in done.stderr
