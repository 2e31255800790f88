-- The rate of events by host, day and kind: on average, and in the busiest second.
WITH seconds AS (
    SELECT host, day, kind, filename, "at" // 1_000_000_000 AS second, count(*) AS events
    FROM read_parquet(getvariable('dataset') || '/*/*/*/*.parquet', hive_partitioning = true, filename = true)
    GROUP BY ALL
)
SELECT
    host, day, kind,
    sum(events) AS events,
    round(sum(events) / count(DISTINCT (filename, second)), 1) AS per_second,
    max(events) AS busiest_second
FROM seconds
GROUP BY ALL
ORDER BY events DESC, host, day, kind;
