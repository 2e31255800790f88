# Brings memory into the state that state_name says, lets the second disk carry off what readers of the machine see, and
# then asks the kernel for blocks, step by step. What the kernel counts stands between the steps.

set_to madvise $THP/enabled
# Nothing works between what is carried off and the requests that is not asked to.
echo 4000000000 > $THP/khugepaged/scan_sleep_millisecs
set_to 0 $VM/compaction_proactiveness
MIN=$(cat $VM/min_free_kbytes)
TOTAL=$(awk '/^MemTotal/ { print $2 }' /proc/meminfo)
mkdir /mnt/files /tmpfs
mount -t debugfs debug /sys/kernel/debug
mount -t tmpfs -o size=100%,nr_inodes=0 tmpfs /tmpfs

# Free memory that is left where a state fills it, in KiB; then where pages of the kernel do: little more than they need
# with low marks and no reserve for lower zones.
LEFT=6144
LAST=4096
RATIO=$(cat $VM/lowmem_reserve_ratio)
# Only 5.10 does not have it; there the lists of CPUs are short.
LISTS=$VM/percpu_pagelist_high_fraction
# Makes a state that fills memory beyond the marks that the kernel has set.
filled() {
    set_to 1024 $VM/min_free_kbytes
    set_to "1000000 1000000 1000000 0 0" $VM/lowmem_reserve_ratio
    # Boosted marks would count against the process, as its pages cannot be reclaimed.
    set_to 0 $VM/watermark_boost_factor
    # What is given back must not wait in the lists of CPUs, where pages of the kernel cannot have it.
    [ -e $LISTS ] && set_to 1000000 $LISTS
    state "$@" || fail "a step of $state_name"
    [ -e $LISTS ] && set_to 0 $LISTS
    set_to 15000 $VM/watermark_boost_factor
    set_to "$RATIO" $VM/lowmem_reserve_ratio
    set_to "$MIN" $VM/min_free_kbytes
}
made() { state "$@" || fail "a step of $state_name"; }

# A minute of processes that come and go, with files, names, pipes and shared memory between.
aged() {
    for round in 1 2 3 4 5 6 7 8 9 10 11 12; do
        mkdir /mnt/files/$round /tmpfs/$round
        made cache /mnt/files/$round $((TOTAL / 8)) > /dev/null
        young=$(made touch $((TOTAL / 16)) keep 60)
        made names /mnt/files/$round $((round * 100)) > /dev/null
        old="$old $(made pins 96 touch $((TOTAL / 24)) keep 50)"
        dd if=/dev/zero of=/tmpfs/$round/shared bs=64k count=64 2> /dev/null
        [ $((round % 3)) = 0 ] || { kill "$young"; rm -r /tmpfs/$round; }
        rm -r /mnt/files/$round/hole*[13579]
    done
    for process in $old; do
        count=$((count + 1))
        [ $((count % 4)) = 0 ] || kill "$process"
    done
}

# Fills memory, what is left of it with pages of the kernel, and then, again and again, pages that are given back among
# the movable ones: the kernel takes the largest blocks first, so these have to be gone.
PINNED="fill $LEFT pin $LAST scatter 16 1 pin $LAST scatter 16 1 pin $LAST scatter 16 1 pin $LAST unpin"
SOME_PINNED="fill $LEFT pin $LAST scatter 32 3 pin $LAST scatter 16 3 pin $LAST unpin"

case $state_name in
fresh) ;;
cache-full) made cache /mnt/files $((TOTAL * 5 / 4)) ;;
cache-pinned)
    filled $PINNED release
    made cache /mnt/files $((TOTAL * 5 / 4)) ;;
movable-sparse | two-nodes) filled fill $LEFT keep 50 ;;
pinned-light) filled $SOME_PINNED release ;;
pinned-heavy) filled $PINNED release ;;
pinned-sparse) filled $SOME_PINNED keep 40 ;;
slab-mixed)
    made cache /mnt/files $((TOTAL * 5 / 4))
    made names /mnt/files 12000 cache /mnt/files $((TOTAL / 4)) ;;
slab-dropped)
    made cache /mnt/files $((TOTAL * 5 / 4))
    made names /mnt/files 12000 cache /mnt/files $((TOTAL / 4))
    sync
    set_to 1 $VM/drop_caches ;;
low-memory) made fill $((MIN * 5 / 4 + 4096)) ;;
tmpfs-sparse) filled files /tmpfs $LEFT thin /tmpfs ;;
mlocked-sparse) filled fill $LEFT keep 50 lock ;;
mlocked-kept)
    set_to 0 $VM/compact_unevictable_allowed
    filled fill $LEFT keep 50 lock ;;
io-held) filled fill $LEFT hold 1 release ;;
aged) aged ;;
*) fail "there is no state $state_name" ;;
esac
sync
sleep 3
# What `nofrag host` reads, of the settings those that the allocator has.
for name in buddyinfo zoneinfo pagetypeinfo vmstat meminfo uptime version iomem sys/kernel/osrelease sys/kernel/arch \
    kpageflags; do
    paths="$paths /proc/$name"
done
for name in compact_unevictable_allowed compaction_proactiveness defrag_mode extfrag_threshold lowmem_reserve_ratio \
    min_free_kbytes percpu_pagelist_high_fraction swappiness vfs_cache_pressure watermark_boost_factor \
    watermark_scale_factor zone_reclaim_mode; do
    paths="$paths $VM/$name"
done
for name in enabled defrag hpage_pmd_size; do paths="$paths $THP/$name"; done
for name in extfrag_index unusable_index; do paths="$paths /sys/kernel/debug/extfrag/$name"; done
carry state $paths /sys/devices/system/cpu/online || fail "nothing can be carried off"


phase() { echo "@@phase $1"; show vmstat /proc/vmstat; show buddyinfo /proc/buddyinfo; }
SMALL=$THP/hugepages-64kB
# Asks for blocks of an order, and says what was given in a section of the phase that ends then.
taken() {
    case $1 in
    9) take 9 "$NODES" /proc/vmstat "thp_fault_alloc " > /taken ;;
    4)
        [ -e $SMALL ] || return
        set_to always $SMALL/enabled
        take 4 "$NODES" $SMALL/stats/anon_fault_alloc "" > /taken
        set_to never $SMALL/enabled ;;
    esac || fail "the requests of order $1"
    phase "$1-$2"
    show taken /taken
}
# Requests are not to be interrupted by those who reclaim: they run first, as long as they want.
set_to -1 /proc/sys/kernel/sched_rt_runtime_us
for runtime in /sys/kernel/debug/sched/fair_server/*/runtime; do
    [ -e "$runtime" ] && set_to 0 "$runtime"
done
NODES=$(ls -d /sys/devices/system/node/node* | wc -l)

echo "@@run"
echo "kernel=$(uname -r)"
echo "cpus=$(grep -c ^processor /proc/cpuinfo)"
echo "nodes=$NODES"
set_to never $THP/defrag
phase start
taken 9 now
taken 4 now
set_to 1 $VM/compact_memory
phase compact
taken 9 compacted
taken 4 compacted
set_to 3 $VM/drop_caches
phase drop
set_to 1 $VM/compact_memory
phase compact-again
taken 9 dropped
carry end /proc/kpageflags /proc/zoneinfo /proc/iomem
echo "@@done"
poweroff -f
