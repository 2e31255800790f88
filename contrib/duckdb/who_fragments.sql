-- Who fragments: requests that were served from a block of another type, by host, day, the type asked for and taken,
-- and how many threads asked. `claims` are pageblocks that changed their type.
SELECT
    host, day, alloc_migratetype, fallback_migratetype,
    count(*) AS events,
    count(*) FILTER (fallback_order < 4) AS serious,
    count(*) FILTER (change_ownership <> 0) AS claims,
    count(DISTINCT pid) AS threads
FROM read_parquet(getvariable('dataset') || '/*/*/kind=mm_page_alloc_extfrag/*.parquet', hive_partitioning = true)
GROUP BY ALL
ORDER BY events DESC, host, day, alloc_migratetype, fallback_migratetype;
