# Sets what the cell says, runs thpfioscale's three phases, prints the kernel's counters. What the cell says comes as
# cell_NAME.
EVENTS=/sys/kernel/tracing/events
LRU=/sys/kernel/mm/lru_gen/enabled
set_to always $THP/enabled
set_to "$cell_defrag" $THP/defrag
set_to "$cell_boost" $VM/watermark_boost_factor
[ -n "$cell_defrag_mode" ] && set_to "$cell_defrag_mode" $VM/defrag_mode
[ -n "$cell_lru_gen" ] && set_to "$cell_lru_gen" $LRU

# Events with the fields that they are counted by.
TRACED="kmem/mm_page_alloc_extfrag:fallback_order,alloc_migratetype,fallback_migratetype
vmscan/mm_vmscan_wakeup_kswapd:order,gfp_flags
vmscan/mm_vmscan_kswapd_wake:order
vmscan/mm_vmscan_direct_reclaim_begin:order,gfp_flags
vmscan/mm_vmscan_direct_reclaim_end:nr_reclaimed.log2
compaction/mm_compaction_end:status,sync
compaction/mm_compaction_suitable:idx,order,ret
compaction/mm_compaction_finished:idx,order,ret
compaction/mm_compaction_deferred:idx,order
compaction/mm_compaction_try_to_compact_pages:order,gfp_mask
compaction/mm_compaction_wakeup_kcompactd:order
compaction/mm_compaction_kcompactd_wake:order"

# First and last frame of each zone that has memory, one zone to a line.
zones() {
    awk '/^Node/ { zone = 0 } $1 == "spanned" { spanned = $2 } $1 == "start_pfn:" && spanned {
        print $2, $2 + spanned - 1 }' /proc/zoneinfo
}
# Counts an event by fields, in histograms of the kernel. Appends: to write a trigger from its beginning takes away those
# that stand there, so that of several zones only the last would be counted.
count() {
    echo "hist:keys=$2:size=2048${3:+ if $3}" >> "$EVENTS/$1/trigger" || echo "@@failed no histogram of $1"
}
if [ -e $EVENTS/kmem/mm_page_alloc_extfrag/hist ]; then
    HISTOGRAMS=1
    for traced in $TRACED; do
        case $traced in
        *extfrag:*) zones | while read -r first last; do
            count "${traced%%:*}" "${traced#*:}" "pfn >= $first && pfn <= $last"
        done ;;
        *) count "${traced%%:*}" "${traced#*:}" ;;
        esac
    done
else
    HISTOGRAMS=
    echo 1024 > /sys/kernel/tracing/buffer_size_kb
    echo 1 > $EVENTS/kmem/mm_page_alloc_extfrag/enable
fi

snapshot() {
    echo "@@phase $1"
    show uptime /proc/uptime
    show vmstat /proc/vmstat
    show buddyinfo /proc/buddyinfo
    show pagetypeinfo /proc/pagetypeinfo
    show zoneinfo /proc/zoneinfo
    if [ -n "$HISTOGRAMS" ]; then
        for traced in $TRACED $MORE; do
            echo "@@section hist ${traced%%:*}"
            grep -E '^# trigger|hitcount' "$EVENTS/${traced%%:*}/hist"
        done
    else
        echo "@@section trace"
        grep mm_page_alloc_extfrag: /sys/kernel/tracing/trace
        echo "@@section trace_lost"
        cat /sys/kernel/tracing/per_cpu/cpu*/stats | grep overrun
    fi
}

echo "@@run"
for name in watermark_boost_factor min_free_kbytes compaction_proactiveness defrag_mode; do
    [ -e "$VM/$name" ] && echo "$name=$(cat $VM/$name)"
done
echo "kernel=$(uname -r)"
echo "defrag=$(cat $THP/defrag)"
echo "lru_gen=$(cat $LRU 2>/dev/null)"
echo "cpus=$(grep -c ^processor /proc/cpuinfo)"
echo "nodes=$(ls -d /sys/devices/system/node/node* | wc -l)"
echo "fio=$(fio --version)"
# How the kernel prints its numbers: the names of flags, zones and results.
for event in kmem/mm_page_alloc compaction/mm_compaction_end compaction/mm_compaction_suitable; do
    show "format ${event#*/}" $EVENTS/$event/format
done

export FILES=$cell_files BYTES=$((cell_files * 65536))
mkdir /mnt/files /mnt/files/0 /mnt/files/1 /mnt/files/2 /mnt/files/3
snapshot start
fio --eta=never --output=/write.log /write.fio || { cat /write.log; fail "fio cannot write"; }
sync
snapshot write
fio --eta=never --output=/read.log /read.fio &
sleep "$cell_warm"
MORE=kmem/mm_page_alloc:gfp_flags
[ -n "$HISTOGRAMS" ] && count kmem/mm_page_alloc gfp_flags "order == 9"
snapshot warm
thp "$cell_thp_bytes" "$cell_madvise" > /thp.log || echo "@@failed the huge page program"
snapshot thp
show units /thp.log
killall -INT fio
wait
show fio_write /write.log
show fio_read /read.log
echo "@@done"
poweroff -f
