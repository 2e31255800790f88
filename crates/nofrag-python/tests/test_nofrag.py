"""The package from outside: columns, replays, scenarios, hosts, allocators, and what its errors say."""

import json
import pathlib
import subprocess
import sys
import threading
import time

import nofrag
import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
RECORDING = REPOSITORY / "crates/nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag"
AREAS = REPOSITORY / "crates/nofrag-lab/data/recordings/linux-6.18-vmalloc-maps.nofrag"


@pytest.fixture(scope="module")
def recording():
    return nofrag.open(RECORDING)


def test_every_event_is_in_one_kind(recording):
    assert recording.release.startswith("6.1.")
    assert len(recording) == len(recording.events) == sum(len(recording[kind]) for kind in recording.kinds)
    assert recording.events.columns == ["at", "cpu", "pid", "event"]
    assert {"mm_page_alloc", "mm_page_free"} <= set(recording.kinds)
    assert recording["mm_page_alloc"].columns[:4] == ["at", "cpu", "pid", "pfn"]
    assert recording["kmem:mm_page_alloc"].columns == recording["mm_page_alloc"].columns
    assert recording.loss == (0, 0, 0)


def test_columns_are_those_of_the_export(recording, tmp_path):
    """What `trace export --to json-lines` writes of the same recording, event by event."""
    program = REPOSITORY / "target/release/nofrag"
    program = pathlib.Path(__import__("os").environ.get("NOFRAG_PROGRAM", program))
    if not program.is_file():
        pytest.skip("there is no nofrag command: NOFRAG_PROGRAM names one")
    polars = pytest.importorskip("polars")
    lines = tmp_path / "events.jsonl"
    subprocess.run([program, "trace", "export", AREAS, "--to", "json-lines", lines], check=True)
    read = nofrag.open(AREAS)
    frames = {kind: polars.DataFrame(read[kind]) for kind in read.kinds}
    rows = {kind: frame.iter_rows(named=True) for kind, frame in frames.items()}
    for line in lines.read_text().splitlines():
        event = json.loads(line)
        kind = event.pop("event").rsplit(":")[-1]
        assert next(rows[kind]) == event
    assert all(next(rest, None) is None for rest in rows.values())


def test_three_libraries_read_a_table(recording):
    pyarrow = pytest.importorskip("pyarrow")
    polars = pytest.importorskip("polars")
    pandas = pytest.importorskip("pandas")
    table = recording["mm_page_alloc"]
    arrow = pyarrow.table(table)
    assert arrow.num_rows == len(table) == len(polars.DataFrame(table)) == len(pandas.DataFrame.from_arrow(table))
    assert polars.DataFrame(table)["order"].sum() == pyarrow.compute.sum(arrow["order"]).as_py()
    counts = polars.DataFrame(recording.events)["event"].value_counts()
    assert dict(counts.iter_rows()) == {kind: len(recording[kind]) for kind in recording.kinds}


def test_columns_are_not_copied(recording):
    pyarrow = pytest.importorskip("pyarrow")
    table = recording["mm_page_free"]

    def addresses():
        return [column.chunk(0).buffers()[1].address for column in pyarrow.table(table).columns]

    assert addresses() == addresses()


def test_columns_outlive_their_recording():
    polars = pytest.importorskip("polars")
    column = polars.DataFrame(nofrag.open(AREAS).events)["at"]
    assert column.is_sorted() and len(column) > 1000


def test_a_replay_is_a_table_and_a_report():
    polars = pytest.importorskip("polars")
    result = nofrag.replay(
        RECORDING, ["linux-6.1", "nofrag"], ["linux-6.1:boost=0"], 2, samples=2, progress=False
    )
    frame = polars.DataFrame(result)
    assert frame["policy"].unique().sort().to_list() == ["linux-6.1", "linux-6.1:boost=0", "nofrag"]
    assert frame["seed"].to_list() == [1, 2] * 3
    runs = {run["policy"]: run for run in result.report["runs"]}
    for row in frame.iter_rows(named=True):
        counts = runs[row["policy"]]["repeats"][row["seed"] - 1]["counts"]
        assert {name: row[name] for name in counts} == counts
    assert set(result.answers.values()) <= {"Holds", "TooFew", "Wide", "Off"} and result.answers


def test_other_threads_run_during_a_replay():
    ticks = []
    done = threading.Event()

    def tick():
        while not done.wait(0.01):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    nofrag.replay(RECORDING, ["nofrag"], seeds=1, progress=False)
    done.set()
    thread.join()
    assert len(ticks) > 3


def test_progress_is_told():
    tqdm = pytest.importorskip("tqdm")
    code = (
        "import nofrag, sys\n"
        f"nofrag.replay({str(RECORDING)!r}, ['nofrag'], seeds=1, progress=True)\n"
        "assert 'tqdm' in sys.modules\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "events" in ran.stderr and tqdm


def test_a_scenario_is_a_report():
    report = nofrag.run("mmap-holes-2005", designs=["linux-2.4", "nofrag"], loops=200)
    assert report["scenario"] == "mmap-holes-2005"
    assert {row["design"] for row in report["measurements"]} == {"linux-2.4", "nofrag"}


def test_a_host_has_findings():
    captured = nofrag.host(REPOSITORY / "data/hosts/whole-6.18-x86_64")
    assert captured["schema"] == "nofrag.host" and captured["findings"]
    assert nofrag.host()["host"]


def test_ranges():
    ranges = nofrag.Ranges(0x1000, 0x9000)
    table = ranges.alloc(0x600)
    assert (table, ranges.alloc(0x1000, align=0x1000)) == (0x1000, 0x2000)
    assert ranges.alloc(0x100, within=(0x8000, 0x9000), fit="highest") == 0x8F00
    ranges.free(table, 0x600)
    assert ranges.holes == [(0x1000, 0x2000), (0x3000, 0x8F00)] and ranges.largest == 0x5F00
    with pytest.raises(nofrag.NoMemory):
        ranges.alloc(0x10000)
    with pytest.raises(nofrag.Error):
        ranges.free(table, 0x600)
    ranges.alloc_at(0x1000, 0x2000)
    assert ranges.unusable_index(0x6000) == 1000


def test_pages():
    pages = nofrag.Pages(1 << 14, policy="linux-6.1")
    frames = []
    with pytest.raises(nofrag.NoMemory, match="order 0"):
        while True:
            frames.append(pages.alloc(kind="movable"))
    assert len(frames) > 10_000
    for frame in sorted(frames)[::2]:
        pages.free(frame)
    assert sum(pages.free_pages.values()) > 5000
    served = []
    with pytest.raises(nofrag.NoMemory, match="order 9"):
        while True:
            served.append(pages.alloc(order=9))
    assert len(served) < 3, "half of memory is free, in pieces"
    for _ in range(300):
        pages.alloc(kind="unmovable")
    assert pages.extfrag > 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: nofrag.open("/no/such"), "No such file"),
        (lambda: nofrag.open(__file__), "no trace that nofrag knows"),
        (lambda: nofrag.replay(RECORDING, ["linux-9"]), "linux-9"),
        (lambda: nofrag.replay(RECORDING, settings=["linux-6.1:swappiness=1"]), "those are boost"),
        (lambda: nofrag.run("no-such"), "there are mmap-holes-2005"),
        (lambda: nofrag.run("mmap-holes-2005", designs=["x"]), "there is no design"),
        (lambda: nofrag.host("/no/such"), "nofrag host capture"),
        (lambda: nofrag.open(RECORDING)["mm_page"], "it has mm_"),
        (lambda: nofrag.Ranges(0, 10).alloc(1, fit="worst"), "lowest, highest"),
        (lambda: nofrag.Pages(1 << 14).alloc(kind="x"), "unmovable, movable"),
        (lambda: nofrag.Pages(1 << 14).alloc(cpu=3), "1 CPUs"),
        (lambda: nofrag.Plan("/no/such"), "No such file"),
    ],
)
def test_errors_say_what_to_do(call, says):
    with pytest.raises(nofrag.Error, match=says):
        call()
