from collections.abc import Callable
from typing import final

__version__: str
__all__ = [
    "Error",
    "NoMemory",
    "Pages",
    "Plan",
    "Ranges",
    "Recording",
    "Table",
    "__version__",
    "default_policies",
    "host",
    "open",
    "policies",
    "replay",
    "run",
    "scenarios",
]

class Error(Exception):
    """What was asked for cannot be had; the text says what to do."""

class NoMemory(Error):
    """An allocator has nothing that fits the request."""

@final
class Table:
    """Columns of equal length, in Arrow's memory format."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""

    @property
    def nbytes(self) -> int:
        """The bytes of the columns' memory."""

    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class Recording:
    """The events of a recording."""

    @property
    def path(self) -> str: ...
    @property
    def release(self) -> str | None:
        """The release of the recorded kernel."""

    @property
    def clock(self) -> str | None: ...
    @property
    def command(self) -> str | None: ...
    @property
    def missing(self) -> list[str]:
        """What the recording lacks, with the consequences, as sentences."""

    @property
    def loss(self) -> tuple[int, int, int]:
        """Events lost, gaps, and records that could not be read."""

    @property
    def events(self) -> Table:
        """All events: `at` in nanoseconds, `cpu`, `pid`, `event`."""

    @property
    def kinds(self) -> list[str]:
        """The kinds of its events."""

    def __len__(self) -> int: ...
    def __getitem__(self, kind: str, /) -> Table:
        """The events of one kind, such as `mm_page_alloc`, with their fields."""

@final
class Plan:
    """A plan of `nofrag sweep`."""

    def __new__(cls, path: str) -> Plan: ...
    def __len__(self) -> int: ...
    def name(self, task: int) -> str:
        """The recording or scenario of a task."""

    def hold(self, task: int) -> None:
        """Holds the events of a task's recording in memory, for the tasks of it that follow."""

    def line(self, task: int) -> str:
        """Carries a task out, and returns the line that `nofrag sweep merge` writes of it."""

@final
class Ranges:
    """Free ranges of numbers: addresses, slots, blocks of a file."""

    def __new__(cls, start: int, end: int) -> Ranges: ...
    def alloc(
        self,
        size: int,
        align: int = 1,
        within: tuple[int, int] | None = None,
        fit: str = "lowest",
    ) -> int:
        """Takes `size` consecutive numbers, and returns the first. Fits: lowest, highest, best, dynamic."""

    def alloc_at(self, start: int, end: int) -> None:
        """Takes this range."""

    def free(self, start: int, size: int) -> None:
        """Gives `size` numbers from `start` on back."""

    @property
    def largest(self) -> int:
        """The size of the largest free range."""

    @property
    def holes(self) -> list[tuple[int, int]]:
        """All free ranges, as pairs of first number and end."""

    def unusable_index(self, size: int) -> int:
        """The share of free numbers that no request of `size` can use, in thousandths."""

@final
class Pages:
    """The page frames of a machine under a policy. Nobody owns the pages: a request for which memory would have to be
    reclaimed or moved fails."""

    def __new__(cls, frames: int, cpus: int = 1, policy: str = "nofrag") -> Pages: ...
    def alloc(self, order: int = 0, kind: str = "movable", cpu: int = 0) -> int:
        """Takes a block of 2 to the power of `order` pages, and returns its first frame. Kinds: unmovable, movable,
        reclaimable."""

    def free(self, pfn: int, cpu: int = 0) -> None:
        """Gives the block that begins at a frame back."""

    @property
    def free_pages(self) -> dict[str, int]:
        """Free pages by zone, those on the lists of CPUs not included."""

    @property
    def extfrag(self) -> int:
        """Events of external fragmentation so far."""

    @property
    def mistyped(self) -> int:
        """Blocks handed out from pageblocks of another type so far."""

def open(path: str) -> Recording: ...
def replay(
    recording: str | None,
    policies: list[str],
    settings: list[str],
    memory: list[int],
    seed: int,
    repeats: int,
    samples: int,
    threads: int,
    progress: Callable[[int, int | None], None] | None,
) -> tuple[Table, str]: ...
def run(
    scenario: str,
    designs: list[str],
    mask: str | None,
    memory: list[int],
    loops: int | None,
    repeat: int | None,
    seed: int | None,
    threads: int | None,
    full: bool,
) -> str: ...
def scenarios() -> list[str]: ...
def policies() -> list[str]: ...
def default_policies() -> list[str]: ...
def host(root: str | None, frames: bool) -> str: ...
