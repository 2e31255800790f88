"""A dataset of 1e8 events, as `nofrag trace export --to dataset` writes it, and the questions of contrib/duckdb."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

pytest.importorskip("duckdb")

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
RECORDING = REPOSITORY / "crates/nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag"
PROGRAM = pathlib.Path(os.environ.get("NOFRAG_PROGRAM", REPOSITORY / "target/release/nofrag"))
EVENTS = 701_106
COPIES = -(-100_000_000 // EVENTS)

ASK = """
import duckdb, json, resource, sys, time
dataset, host, sql = sys.argv[1:]
connection = duckdb.connect()
connection.execute("SET memory_limit = '1GB'; SET threads = 2; SET enable_progress_bar = false")
for name, value in [("dataset", dataset), ("host", host), ("day", "2026-11-26")]:
    connection.execute(f"SET VARIABLE {name} = '{value}'")
begin = time.process_time()
rows = connection.execute(open(sql).read())
names = [column[0] for column in rows.description]
rows = [dict(zip(names, map(str, row))) for row in rows.fetchall()]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"rows": rows, "seconds": time.process_time() - begin, "peak_kib": peak}))
"""


def ask(dataset, name, host="h000"):
    sql = REPOSITORY / f"contrib/duckdb/{name}.sql"
    ran = subprocess.run(
        [sys.executable, "-c", ASK, dataset, host, sql], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout)
    print(f"{name}: {answer['seconds']:.1f} s of CPU, {answer['peak_kib'] >> 10} MiB")
    assert answer["peak_kib"] < 2 << 20, "memory is bounded"
    return answer["rows"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """The recording that comes with nofrag, as that of as many hosts as make 1e8 events."""
    if not PROGRAM.is_file():
        pytest.skip("there is no nofrag command: NOFRAG_PROGRAM names one")
    folder = tmp_path_factory.mktemp("dataset")
    export = ["trace", "export", RECORDING, "--to", "dataset", folder]
    begin = time.monotonic()
    subprocess.run([PROGRAM, *export, "--host", "h000", "--day", "2026-11-26"], check=True)
    first = folder / "host=h000"
    size = sum(file.stat().st_size for file in first.rglob("*.parquet"))
    print(f"export: {time.monotonic() - begin:.2f} s, {size / EVENTS:.2f} bytes an event")
    assert size * COPIES < 3e9
    for copy in range(1, COPIES):
        shutil.copytree(first, folder / f"host=h{copy:03}")
    yield folder
    shutil.rmtree(folder)


def test_the_rate_of_events(dataset):
    rows = ask(dataset, "rate")
    assert sum(int(row["events"]) for row in rows) == EVENTS * COPIES >= 100_000_000
    kinds = {row["kind"] for row in rows}
    assert {"mm_page_alloc", "mm_page_free"} <= kinds and len(rows) == COPIES * len(kinds)
    assert all(int(row["busiest_second"]) >= float(row["per_second"]) for row in rows)


def test_who_fragments(dataset):
    rows = ask(dataset, "who_fragments")
    assert {row["host"] for row in rows} == {f"h{copy:03}" for copy in range(COPIES)}
    assert all(int(row["serious"]) <= int(row["events"]) for row in rows)


def test_how_long_blocks_live(dataset):
    rows = ask(dataset, "lives", host=f"h{COPIES - 1:03}")
    nofrag = pytest.importorskip("nofrag")
    polars = pytest.importorskip("polars")
    asked = polars.DataFrame(nofrag.open(RECORDING)["mm_page_alloc"]).drop_nulls("pfn")
    assert sum(int(row["blocks"]) for row in rows) == len(asked)
    assert any(int(row["open"]) < int(row["blocks"]) for row in rows)
