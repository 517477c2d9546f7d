"""Looking at runs: summaries, statistics, tables and figures."""
