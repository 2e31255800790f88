"""Allocators of PyTorch and CuPy under the draws that come in, as `serve` in mod.rs follows them; one line of JSON."""

import array
import importlib
import json
import os
import sys
import time

kind = sys.argv[1]
data = sys.stdin.buffer
head = array.array("Q", data.read(6 * 8))
pool_bytes, unit, ageing, counted, part_seconds, drawn = head
sizes = array.array("I", data.read(4 * drawn))
picks = array.array("I", data.read(4 * drawn))

if kind == "cupy":
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        sys.exit(f"CuPy is not there: {error}")
    pool = cupy.cuda.MemoryPool()
    pool.set_limit(size=pool_bytes)
    version = f"CuPy {cupy.__version__}"
    refusal = cupy.cuda.memory.OutOfMemoryError
    alloc = pool.malloc

    def free(block):
        # It goes when nobody holds it.
        pass

    empty = pool.used_bytes
else:
    settings = {
        "native": "backend:native",
        "expandable_segments": "expandable_segments:True",
        "cudaMallocAsync": "backend:cudaMallocAsync",
    }
    os.environ["PYTORCH_ALLOC_CONF"] = os.environ["PYTORCH_CUDA_ALLOC_CONF"] = settings[kind]
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        sys.exit(f"PyTorch is not there: {error}")
    torch.cuda.init()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, pool_bytes / total))
    version = f"PyTorch {torch.__version__}"
    refusal = torch.cuda.OutOfMemoryError
    stream = torch.cuda.current_stream().cuda_stream
    raw_alloc, raw_free = torch._C._cuda_cudaCachingAllocator_raw_alloc, torch._C._cuda_cudaCachingAllocator_raw_delete

    def alloc(size):
        return raw_alloc(size, stream)

    free = raw_free

    def empty():
        pass


live = []
live_units = 0
served = picked = evicted = 0


def evict(index):
    global live_units, evicted
    block, units = live[index]
    live[index] = live[-1]
    live.pop()
    live_units -= units
    evicted += 1
    free(block)


def part(is_done):
    """Serves requests until `is_done`, or until time is up; returns how many, and how full it was at refusals."""
    global live_units, served, picked
    done, full, began = 0, [], time.perf_counter()
    while not is_done(done, full) and (done % 16 or time.perf_counter() - began < part_seconds):
        units = sizes[served % drawn]
        is_first = True
        while True:
            try:
                block = alloc(units * unit)
                break
            except refusal:
                if is_first:
                    full.append(live_units)
                    is_first = False
                if not live:
                    sys.exit(f"refuses {units} units when nothing is live")
                index = picks[picked % drawn] * len(live) >> 32
                picked += 1
                evict(index)
        live.append((block, units))
        block = None
        live_units += units
        served += 1
        done += 1
    return done, full


def percent(units):
    return units * unit / pool_bytes * 100


began = time.perf_counter_ns()
for _ in range(100_000):
    empty()
empty_ns = (time.perf_counter_ns() - began) / 100_000

filled, first = part(lambda _, full: full)
if not first:
    sys.exit(f"too slow to fill: {filled} requests in {part_seconds} s")
part(lambda done, _: done == ageing)
before, began = evicted, time.perf_counter_ns()
done, full = part(lambda done, _: done == counted)
ns = (time.perf_counter_ns() - began) / (done + evicted - before)
mean = sum(map(percent, full)) / len(full) if full else 0
print(json.dumps({"first": percent(first[0]), "full": mean, "ns": ns, "empty_ns": empty_ns, "version": version, "done": done}))
