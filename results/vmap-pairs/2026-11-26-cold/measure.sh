#!/usr/bin/env bash
# Instructions per pair from an empty space and in one long hole: the difference of two runs, over the difference of
# pairs.
set -euo pipefail
cargo build -p nofrag-bench --profile measured --example pairs
program=target/measured/examples/pairs

instructions() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$@" 2>&1 | awk '/Collected/ { print $4 }'
}

measure() {
    local name=$1 few=$2 many=$3
    shift 3
    awk -v name="$name" -v few="$(instructions "$@" "$few")" -v many="$(instructions "$@" "$many")" \
        -v pairs="$((many - few))" 'BEGIN { printf "%-44s %7.1f\n", name, (many - few) / pairs }'
}

for preset in nofrag linux-6.9; do
    measure "$preset, cold (first 8,000)" 0 8000 areas "$preset" fix-size
    measure "$preset, growing (next 8,000)" 8000 16000 areas "$preset" fix-size
    measure "$preset, first 40,000" 0 40000 areas "$preset" fix-size
    measure "$preset, warm" 40000 80000 areas "$preset" fix-size
done
measure "nofrag, churn" 10000 60000 areas nofrag churn
measure "nofrag, half of the areas purged" 10000 40000 areas nofrag purge
for kept in nothing classes sizes; do
    for bits in 30 40; do
        measure "one hole of 2^$bits, kept besides: $kept" 10000 60000 hole "$kept" "$bits"
    done
done
