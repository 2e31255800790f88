"""Kernel recordings as columns, replays under any policy as tables, findings of a Linux host as data.

>>> import nofrag, polars
>>> recording = nofrag.open("a.nofrag")
>>> polars.DataFrame(recording["mm_page_alloc"])
>>> polars.DataFrame(nofrag.replay("a.nofrag", policies=["linux-6.1", "nofrag"]))

A `Table` is read without a copy by whatever knows Arrow's PyCapsule interface: `polars.DataFrame(table)`,
`pyarrow.table(table)`, `pandas.DataFrame.from_arrow(table)`. Everything that can fail raises `nofrag.Error`, whose text
says what to do.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from . import _native
from ._native import Error, NoMemory, Pages, Plan, Ranges, Recording, Table, __version__

__all__ = [
    "DEFAULT_POLICIES",
    "Error",
    "NoMemory",
    "Pages",
    "Plan",
    "Ranges",
    "Recording",
    "Replay",
    "Table",
    "__version__",
    "host",
    "open",
    "policies",
    "replay",
    "run",
    "scenarios",
]

DEFAULT_POLICIES = tuple(_native.default_policies())
"""The policies that `replay` compares when none is named."""

Path = str | os.PathLike[str]


class Replay:
    """The result of a replay: a table with a row for each run and seed, and the report of `nofrag replay --json`."""

    def __init__(self, table: Table, report: dict[str, Any]) -> None:
        self.table = table
        self.report = report

    @property
    def answers(self) -> dict[str, str]:
        """The questions that this recording can answer, each with its verdict: `Holds`, `TooFew`, `Wide` or `Off`."""
        fidelity = self.report["fidelity"] or {"answers": []}
        return {each["query"]: each["verdict"] for each in fidelity["answers"]}

    @property
    def cautions(self) -> list[str]:
        """Sentences about conclusions that do not hold, and about assumptions."""
        return list(self.report["cautions"])

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.table.__arrow_c_schema__()

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        return f"<nofrag.Replay of {self.report['trace']}: {len(self)} runs>"


def open(recording: Path) -> Recording:
    """Reads a recording, or any trace that nofrag knows, into columns.

    It is read whole, about 70 bytes of memory for each event. Of what is larger than memory,
    `nofrag trace export --to parquet` makes columns on the disk.
    """
    return _native.open(os.fspath(recording))


def replay(
    recording: Path | None = None,
    policies: Iterable[str] | None = None,
    settings: Iterable[str] = (),
    seeds: int = 5,
    *,
    seed: int = 1,
    memory: Iterable[int] = (100,),
    samples: int = 72,
    threads: int = 0,
    progress: bool | None = None,
) -> Replay:
    """Replays a recording under policies; `None` for the recording that comes with nofrag.

    `settings` are those of `nofrag replay --set`: `"linux-6.1:boost=0/15000"`. `seeds` is their number, from `seed` on;
    `memory` is in percent of the recorded host's. `threads` is one per CPU if it is 0. Progress is shown if tqdm is
    installed and standard error is a terminal, or as `progress` says.
    """
    settings = list(settings)
    if policies is None:
        policies = DEFAULT_POLICIES if not settings else [text.split(":")[0] for text in settings]
    path = None if recording is None else os.fspath(recording)
    with _Bar(progress) as bar:
        table, report = _native.replay(
            path, list(policies), settings, list(memory), seed, seeds, samples, threads, bar.tell
        )
    return Replay(table, json.loads(report))


def run(
    scenario: str,
    *,
    designs: Iterable[str] = (),
    mask: str | None = None,
    memory: Iterable[int] = (),
    loops: int | None = None,
    repeat: int | None = None,
    seed: int | None = None,
    threads: int | None = None,
    full: bool = False,
) -> dict[str, Any]:
    """Runs a scenario (`nofrag.scenarios()` names them), and returns its report, as it stands among the `reports` of `nofrag run --json`."""
    report: dict[str, Any] = json.loads(
        _native.run(scenario, list(designs), mask, list(memory), loops, repeat, seed, threads, full)
    )
    return report


def host(root: Path | None = None, *, frames: bool = False) -> dict[str, Any]:
    """Looks at this host, or at one that `nofrag host capture` wrote to a folder: what `nofrag host --json` prints.

    `["findings"]` are its findings, `["verdict"]` says what would still succeed. Needs no rights; what may not be read
    stands in `["missing"]`. `frames` reads what each page frame is used for, which takes a second for 25 GiB.
    """
    root = None if root is None else os.fspath(root)
    findings: dict[str, Any] = json.loads(_native.host(root, frames))
    return findings


def policies() -> list[str]:
    """The names of all policies, oldest first."""
    return _native.policies()


def scenarios() -> list[str]:
    """The names of the scenarios."""
    return _native.scenarios()


class _Bar:
    """A bar of tqdm, if there is one and somebody looks."""

    def __init__(self, wanted: bool | None) -> None:
        self._bar: Any = None
        if wanted is False:
            return
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return
        # `None` lets tqdm see whether standard error is a terminal.
        self._bar = tqdm(unit=" events", unit_scale=True, disable=False if wanted else None)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    @property
    def tell(self) -> Any:
        return None if self._bar is None or self._bar.disable else self._told

    def _told(self, events: int, of: int | None) -> None:
        self._bar.total = of
        self._bar.update(events - self._bar.n)
