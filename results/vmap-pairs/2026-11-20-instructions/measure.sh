#!/usr/bin/env bash
# Instructions per loop of every workload under every preset: the difference of two runs, over the difference of loops.
set -euo pipefail
cargo build -p nofrag --release --example vmap_pairs
program=target/release/examples/vmap_pairs

instructions() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$@" 2>&1 | awk '/Collected/ { print $4 }'
}

measure() {
    local few many
    few=$(instructions "$1" "$2" "$3")
    many=$(instructions "$1" "$2" "$4")
    awk -v preset="$1" -v workload="$2" -v few="$few" -v many="$many" -v loops="$(($4 - $3))" \
        'BEGIN { printf "%-11s %-15s %9.1f\n", preset, workload, (many - few) / loops }'
}

for preset in linux-4.19 linux-5.2 linux-5.11 linux-6.9 nofrag; do
    for workload in fix_size random_size fix_align full_fit; do
        measure "$preset" "$workload" 100000 140000
    done
    if [ "$preset" = linux-4.19 ]; then
        measure "$preset" long_busy_hole 500 1500
        measure "$preset" churn 1000 3000
    else
        measure "$preset" long_busy_hole 20000 40000
        measure "$preset" churn 100000 140000
    fi
done
measure nofrag handle 20000 60000
