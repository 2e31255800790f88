export CARGO_TARGET_DIR=/work/wt/core/target
cargo build -q -p nofrag --release --example ram_pairs 2>&1 | grep -E "^error" -A6
for p in ${1:-one max w1 w2 w3}; do for w in handle call; do echo "$p $w $(target/release/examples/ram_pairs nofrag $w $p 20000000) $(for n in 200000 1200000; do valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/ram_pairs nofrag $w $p $n 2>&1 | grep Collected | awk '{print $4}'; done | awk 'NR==1{a=$1} NR==2{print ($1-a)/1e6 " instr"}')"; done; done
