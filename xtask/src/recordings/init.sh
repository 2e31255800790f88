# Records the kernel while it runs the load, under the settings that the cell says; the second disk brings nofrag and
# carries the recording off. Settings come as cell_set, NAME=VALUE of /proc/sys/vm, several between commas.
tar -xf /dev/vdb -C /mnt nofrag || fail "the second disk has no program"
export PATH=$PATH:/mnt
mkdir /tmp /mnt/load
set_to madvise $THP/enabled
set_to madvise $THP/defrag
for pair in $(echo "$cell_set" | tr , ' '); do
    set_to "${pair#*=}" "$VM/${pair%%=*}"
done

pages() {
    nofrag record -o /mnt/recording.nofrag --bulk --force -- \
        nofrag workload thpfioscale --dir /mnt/load --memory-mib "$cell_memory_mib" --seconds "$cell_seconds" --seed "$1"
}

# Areas of vmalloc. What is recorded is compared elsewhere, so the command ends when it begins to compare.
areas() {
    for program in maps threads racing; do
        nofrag run vmap-live --mask $program --repeat 5 --loops 6000 --seed "$1" --keep /mnt/kept &
        until [ -e /mnt/kept/$program-5.nofrag ]; do
            sleep 1
            kill -0 $! || return 1
        done
        sleep 10
        kill $!
    done
}

# Likewise where the kernel has no events of areas: its lists.
lists() {
    nofrag run vmap-live --mask lists --repeat 6 --loops 18000 --seed "$1" --keep /mnt/kept
}

echo "@@run"
echo "kernel=$(uname -r)"
for name in watermark_boost_factor watermark_scale_factor min_free_kbytes compaction_proactiveness defrag_mode; do
    [ -e "$VM/$name" ] && echo "$name=$(cat $VM/$name)"
done
echo "@@phase record"
echo "@@section said"
$cell_load "$cell_repeat" 2>&1 || fail "the recording"
# What stood on the second disk must not follow what is carried off.
dd if=/dev/zero of=/dev/vdb bs=1M count=32 2> /dev/null && sync || fail "the second disk cannot be cleared"
carry out /mnt/recording.nofrag /mnt/kept/* || fail "nothing can be carried off"
echo "@@done"
poweroff -f
