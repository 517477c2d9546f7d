"""Analysis of runs: summaries, statistics, tables and figures."""
