#!/usr/bin/env bash
# Instructions per pair of every workload under every preset: the difference of two runs, over the difference of pairs.
set -euo pipefail
cargo build -p nofrag-bench --profile measured --example pairs
program=${CARGO_TARGET_DIR:-target}/measured/examples/pairs
few=50000
many=350000

instructions() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" ram "$@" 2>&1 | awk '/Collected/ { print $4 }'
}

measure() {
    awk -v preset="$1" -v way="$2" -v workload="$3" -v pairs="$((many - few))" \
        -v few="$(instructions "$@" "$few")" -v many="$(instructions "$@" "$many")" \
        'BEGIN { printf "%-10s %-6s %-4s %7.1f\n", preset, way, workload, (many - few) / pairs }'
}

for workload in one max w1 w2 w3; do
    measure nofrag handle "$workload"
    for preset in nofrag linux-4.1 linux-6.4 linux-6.11; do
        measure "$preset" call "$workload"
    done
done
