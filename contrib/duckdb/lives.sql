-- How long blocks live, by the thread that asked and the order, of one host and day: each allocation with the next free
-- of the same frame. `open` are those without one. Other days and hosts are asked one by one, so that memory is bounded
-- by the events of one.
WITH steps AS (
    SELECT filename, pfn, "at", pid, "order", true AS asks
    FROM read_parquet(
        getvariable('dataset') || '/host=' || getvariable('host') || '/day=' || getvariable('day')
            || '/kind=mm_page_alloc/*.parquet', filename = true)
    WHERE pfn IS NOT NULL
    UNION ALL
    SELECT replace(filename, 'kind=mm_page_free/', 'kind=mm_page_alloc/'), pfn, "at", pid, "order", false
    FROM read_parquet(
        getvariable('dataset') || '/host=' || getvariable('host') || '/day=' || getvariable('day')
            || '/kind=mm_page_free/*.parquet', filename = true)
),
lives AS (
    SELECT pid, "order", asks, lead("at") OVER same - "at" AS life, lead(asks) OVER same AS asked_again
    FROM steps
    WINDOW same AS (PARTITION BY filename, pfn ORDER BY "at", asks)
)
SELECT
    pid, "order",
    count(*) AS blocks,
    count(*) FILTER (asked_again IS DISTINCT FROM false) AS open,
    round(approx_quantile(life, 0.5) FILTER (asked_again = false) / 1e6, 3) AS median_ms,
    round(approx_quantile(life, 0.99) FILTER (asked_again = false) / 1e6, 3) AS p99_ms
FROM lives
WHERE asks
GROUP BY ALL
ORDER BY blocks DESC, pid, "order";
