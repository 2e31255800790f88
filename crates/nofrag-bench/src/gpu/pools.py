"""Allocators of PyTorch and CuPy under the draws that come in, as `serve` in mod.rs follows them; one line of JSON."""

import array
import ctypes
import importlib
import json
import os
import sys
import time

kind = sys.argv[1]
data = sys.stdin.buffer
head = array.array("Q", data.read(7 * 8))
pool_bytes, unit, ageing, counted, part_seconds, fill_seconds, drawn = head
sizes = array.array("I", data.read(4 * drawn))
picks = array.array("I", data.read(4 * drawn))

if kind == "cupy":
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        sys.exit(f"CuPy is not there: {error}")
    pool = cupy.cuda.MemoryPool()
    pool.malloc(unit)
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
    version = f"PyTorch {torch.__version__}"
    refusal = torch.cuda.OutOfMemoryError
    stream = torch.cuda.current_stream().cuda_stream
    raw_alloc, raw_free = torch._C._cuda_cudaCachingAllocator_raw_alloc, torch._C._cuda_cudaCachingAllocator_raw_delete

    def alloc(size):
        return raw_alloc(size, stream)

    free = raw_free

    def empty():
        pass


# What the device has free beyond the pool is taken.
driver = ctypes.CDLL("libcuda.so.1")
free_bytes, all_bytes, beyond = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
driver.cuMemGetInfo_v2(ctypes.byref(free_bytes), ctypes.byref(all_bytes))
if driver.cuMemAlloc_v2(ctypes.byref(beyond), ctypes.c_size_t(free_bytes.value - pool_bytes)):
    sys.exit("the memory beyond the pool cannot be taken")

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


def serve(full):
    """Serves one request, and evicts until it fits."""
    global live_units, served, picked
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
            evict_one()
    live.append((block, units))
    live_units += units
    served += 1


def evict_one():
    global picked
    index = picks[picked % drawn] * len(live) >> 32
    picked += 1
    evict(index)


def part(is_done, seconds):
    """Serves requests until `is_done`, or until time is up; returns how many, and how full it was at refusals."""
    done, full, began = 0, [], time.perf_counter()
    while not is_done(done, full) and (done % 16 or time.perf_counter() - began < seconds):
        serve(full)
        done += 1
    return done, full


def percent(units):
    return units * unit / pool_bytes * 100


began = time.perf_counter_ns()
for _ in range(100_000):
    empty()
empty_ns = (time.perf_counter_ns() - began) / 100_000

_, first = part(lambda _, full: full or percent(live_units) > 75, fill_seconds)
done, began = 0, time.perf_counter_ns()
while done < counted and (done % 16 or time.perf_counter_ns() - began < part_seconds * 1e9):
    evict_one()
    serve([])
    done += 1
ns = (time.perf_counter_ns() - began) / (2 * done)
filled, more = part(lambda _, full: full, fill_seconds)
first += more
if not first:
    sys.exit(f"too slow to fill: {filled} requests in {fill_seconds} s")
part(lambda done, _: done == ageing, part_seconds)
before, began = evicted, time.perf_counter_ns()
done, full = part(lambda done, _: done == counted, part_seconds)
ns_full = (time.perf_counter_ns() - began) / (done + evicted - before)
answer = {
    "first": percent(first[0]),
    "full": sum(map(percent, full)) / len(full) if full else 0,
    "ns": ns,
    "ns_full": ns_full,
    "empty_ns": empty_ns,
    "version": version,
    "done": done,
}
print(json.dumps(answer))
