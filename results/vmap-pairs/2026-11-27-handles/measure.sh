#!/usr/bin/env bash
# Instructions per pair: the difference of two runs, over the difference of pairs.
set -euo pipefail
cargo build -p nofrag-bench --profile measured --example pairs
program=target/measured/examples/pairs

instructions() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$@" 2>&1 | awk '/Collected/ { print $4 }'
}

for workload in handle fix-size; do
    for range in "0 8000" "0 40000" "40000 80000"; do
        read -r few many <<< "$range"
        awk -v name="$workload, $few to $many" -v few="$(instructions areas nofrag "$workload" "$few")" \
            -v many="$(instructions areas nofrag "$workload" "$many")" -v pairs="$((many - few))" \
            'BEGIN { printf "%-44s %8.1f\n", name, (many - few) / pairs }'
    done
done
