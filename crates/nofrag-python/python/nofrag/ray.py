"""Sweeps on Ray: actors hold recordings, Ray retries what a lost worker had, results stream into a Parquet dataset.

>>> import nofrag.ray
>>> nofrag.ray.sweep("plan.toml", "out", workers=8)
>>> nofrag.ray.merge("plan.toml", "out", "all.jsonl")   # the bytes of `nofrag sweep merge`

The plan is that of `nofrag sweep`, and so are the tasks and their results; plan and recordings lie where every node
sees them. Take it where recordings are long to decode and tasks are uneven; where a folder and an array of jobs will
do, `nofrag sweep --shard` needs nothing but itself.

The driver alone writes, a part at a time and each part by a rename, so that no result is there twice. A sweep whose
driver was killed is called again, and does what is missing. Needs `pip install ray pyarrow`.
"""

from __future__ import annotations

import collections
import json
import os
import pathlib
from typing import Any

import pyarrow
import pyarrow.parquet
import ray

import nofrag

SCHEMA = pyarrow.schema(
    [
        ("task", pyarrow.int64()),
        ("id", pyarrow.string()),
        ("name", pyarrow.string()),
        ("kind", pyarrow.string()),
        ("policy", pyarrow.string()),
        ("design", pyarrow.string()),
        ("memory_percent", pyarrow.int64()),
        ("seed", pyarrow.uint64()),
        ("failed", pyarrow.string()),
        ("line", pyarrow.string()),
    ]
)
"""The columns of the dataset: `task` is the place in the plan, `line` the whole result as JSON."""


class Worker:
    """Holds one recording of a plan, and carries out tasks."""

    def __init__(self, plan: str) -> None:
        self._path = plan
        self._held: str | None = None
        self._plan = nofrag.Plan(plan)

    def pid(self) -> int:
        return os.getpid()

    def line(self, task: int) -> str:
        name = self._plan.name(task)
        if name != self._held:
            # A plan of its own for each recording lets go of the last one.
            self._plan = nofrag.Plan(self._path)
            try:
                self._plan.hold(task)
            except nofrag.Error:
                pass  # It is read for each task then, and what is wrong with it stands in their results.
            self._held = name
        return self._plan.line(task)


class _Queue:
    """The tasks that are left, by recording."""

    def __init__(self, plan: nofrag.Plan, done: set[int]) -> None:
        self._left: dict[str, collections.deque[int]] = collections.defaultdict(collections.deque)
        for task in range(len(plan)):
            if task not in done:
                self._left[plan.name(task)].append(task)
        self._held: dict[int, str] = {}

    def next(self, worker: int) -> int | None:
        """A task of the recording that the worker holds, else of one that nobody holds, else of the longest rest."""
        if not self._left:
            return None
        name = self._held.get(worker, "")
        if name not in self._left:
            taken = set(self._held.values())
            name = max(self._left, key=lambda other: (other not in taken, len(self._left[other])))
            self._held[worker] = name
        task = self._left[name].popleft()
        if not self._left[name]:
            del self._left[name]
        return task


class _Dataset:
    """Parts of results, each written whole or not at all."""

    def __init__(self, folder: pathlib.Path, rows: int) -> None:
        self._folder, self._rows = folder, rows
        self._pending: list[dict[str, Any]] = []
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, task: int, line: str) -> None:
        result = json.loads(line)
        row = {name: result["task"].get(name) for name in SCHEMA.names}
        row |= {"task": task, "id": result["id"], "name": result["name"], "line": line}
        self._pending.append(row | {"failed": result.get("failed")})
        if len(self._pending) >= self._rows:
            self.flush()

    def flush(self) -> None:
        if not self._pending:
            return
        first = min(row["task"] for row in self._pending)
        path = self._folder / f"part-{first:09}.parquet"
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(self._pending, SCHEMA), draft)
        draft.replace(path)
        self._pending = []


def _read(plan: nofrag.Plan, out: pathlib.Path, columns: list[str]) -> pyarrow.Table:
    """The results that are there, in the order of the plan; refuses those of another plan."""
    parts = sorted(out.glob("part-*.parquet"))
    tables = [pyarrow.parquet.read_table(part, columns=["task", "name", *columns]) for part in parts]
    table = pyarrow.concat_tables(tables) if tables else SCHEMA.empty_table()
    for task, name in zip(table["task"].to_pylist(), table["name"].to_pylist()):
        if task >= len(plan) or plan.name(task) != name:
            raise nofrag.Error(f"{out} has the results of another plan: choose another folder")
    return table.sort_by("task")


def sweep(
    plan: nofrag.Path, out: nofrag.Path, *, workers: int | None = None, part_rows: int = 256
) -> dict[str, Any]:
    """Carries out the tasks of a plan that the dataset in the folder `out` lacks.

    `workers` are one per CPU of the cluster, if not said. Returns `tasks`, `kept`, `made`, and in `not_done` why tasks
    have no result. Call `ray.init` before to choose a cluster.
    """
    if not ray.is_initialized():
        ray.init()
    path, folder = str(pathlib.Path(plan).resolve()), pathlib.Path(out)
    tasks = nofrag.Plan(path)
    done = set(_read(tasks, folder, [])["task"].to_pylist())
    queue, dataset = _Queue(tasks, done), _Dataset(folder, part_rows)
    cpus: float = ray.cluster_resources().get("CPU", 1)  # type: ignore[no-untyped-call]
    count = workers or max(1, int(cpus))
    share = min(1.0, cpus / count)
    actor: Any = ray.remote(num_cpus=share, max_restarts=-1, max_task_retries=-1)(Worker)
    actors = [actor.remote(path) for _ in range(count)]
    running: dict[Any, tuple[int, int]] = {}

    def start(worker: int) -> None:
        task = queue.next(worker)
        if task is not None:
            running[actors[worker].line.remote(task)] = (worker, task)

    made, not_done = 0, []
    try:
        for worker in range(count):
            start(worker)
        while running:
            (ready, *_), _ = ray.wait(list(running))
            worker, task = running.pop(ready)
            start(worker)
            try:
                dataset.add(task, ray.get(ready))
                made += 1
            except nofrag.Error as why:
                not_done.append(str(why).strip().rsplit("\n", 1)[-1])
    finally:
        dataset.flush()
        for actor in actors:
            ray.kill(actor)
    return {"tasks": len(tasks), "kept": len(done), "made": made, "not_done": sorted(set(not_done))}


def merge(plan: nofrag.Path, out: nofrag.Path, to: nofrag.Path) -> int:
    """Writes the results to a file of JSON lines, as `nofrag sweep merge` does; returns their number."""
    tasks = nofrag.Plan(os.fspath(plan))
    table = _read(tasks, pathlib.Path(out), ["line"])
    if table["task"].to_pylist() != list(range(len(tasks))):
        missing = len(tasks) - len(table)
        raise nofrag.Error(f"{missing} of {len(tasks)} results are missing: call sweep again")
    target = pathlib.Path(to)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    draft.write_text("".join(table["line"].to_pylist()))
    draft.replace(target)
    return len(table)
