"""A sweep on a local Ray of 8 workers, of which some are killed: the bytes of one process."""

import collections
import json
import os
import pathlib
import random
import signal
import subprocess
import threading

import nofrag
import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("pyarrow")

import nofrag.ray  # noqa: E402

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
RECORDINGS = REPOSITORY / "crates/nofrag-lab/data/recordings"
WORKERS = 8


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def plan(folder, text):
    file = folder / "plan.toml"
    file.write_text(text)
    return file


def one_process(file):
    """The lines of all tasks, in one process."""
    tasks = nofrag.Plan(str(file))
    return "".join(tasks.line(task) for task in range(len(tasks)))


def kill_at_random(stop, seed, kills, killed):
    """Kills one of the workers at random moments, so many times."""
    chance = random.Random(seed)
    while len(killed) < kills and not stop.wait(chance.uniform(0.5, 2)):
        found = subprocess.run(["pgrep", "-f", "^ray::Worker"], capture_output=True, text=True)
        workers = [pid for pid in map(int, found.stdout.split()) if is_ours(pid)]
        if workers:
            pid = chance.choice(workers)
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)


def is_ours(pid):
    """True for a descendant of this process, which has begun the cluster."""
    try:
        while pid > 1:
            if pid == os.getpid():
                return True
            stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
            pid = int(stat.rsplit(")", 1)[1].split()[1])
    except OSError:
        pass
    return False


TEXT = f"""
[[replay]]
recordings = ["{RECORDINGS}/linux-6.1-guest-*.nofrag"]
policies = ["linux-4.20", "linux-6.1", "nofrag"]
repeats = 2

[[scenario]]
name = "mmap-holes-2005"
loops = 2000
repeats = 3
"""


def test_killed_workers_change_no_byte(tmp_path):
    file = plan(tmp_path, TEXT)
    tasks = len(nofrag.Plan(str(file)))
    stop, killed = threading.Event(), []
    # A worker dies for each tenth task.
    killer = threading.Thread(target=kill_at_random, args=(stop, 1, tasks // 10, killed))
    killer.start()
    try:
        swept = nofrag.ray.sweep(file, tmp_path / "out", workers=WORKERS, part_rows=7)
    finally:
        stop.set()
        killer.join()
    assert killed, "nobody was killed"
    assert swept == {"tasks": tasks, "kept": 0, "made": tasks, "not_done": []}
    assert nofrag.ray.merge(file, tmp_path / "out", tmp_path / "all.jsonl") == tasks
    text = (tmp_path / "all.jsonl").read_text()
    assert text == one_process(file), "the bytes of one process"
    seen = collections.Counter(
        (line["name"], line["id"]) for line in map(json.loads, text.splitlines())
    )
    assert len(seen) == tasks and set(seen.values()) == {1}
    print(f"{len(killed)} workers killed during {tasks} tasks")


def test_what_is_missing_is_done(tmp_path):
    file = plan(tmp_path, "[[scenario]]\nname = 'mmap-holes-2005'\nloops = 200\nrepeats = 2\n")
    out = tmp_path / "out"
    whole = nofrag.ray.sweep(file, out, workers=2, part_rows=2)
    parts = sorted(out.glob("part-*.parquet"))
    assert whole["made"] == whole["tasks"] and len(parts) > 3
    parts[1].unlink()
    with pytest.raises(nofrag.Error, match="2 of .* missing"):
        nofrag.ray.merge(file, out, tmp_path / "all.jsonl")
    again = nofrag.ray.sweep(file, out, workers=2)
    assert (again["kept"], again["made"]) == (whole["tasks"] - 2, 2)
    nofrag.ray.merge(file, out, tmp_path / "all.jsonl")
    assert (tmp_path / "all.jsonl").read_text() == one_process(file)
    other = plan(tmp_path, "[[replay]]\nrecordings = ['shipped']\nrepeats = 1\n")
    with pytest.raises(nofrag.Error, match="another plan"):
        nofrag.ray.sweep(other, out, workers=2)


def test_a_recording_that_cannot_be_read_has_no_result(tmp_path):
    (tmp_path / "strange.nofrag").write_text("no recording")
    file = plan(
        tmp_path,
        "[[replay]]\nrecordings = ['strange.nofrag', 'gone.nofrag']\nrepeats = 1\npolicies = ['nofrag']\n",
    )
    swept = nofrag.ray.sweep(file, tmp_path / "out", workers=2)
    assert swept["made"] == 2 and len(swept["not_done"]) == 1, swept
    assert "gone.nofrag" in swept["not_done"][0]
