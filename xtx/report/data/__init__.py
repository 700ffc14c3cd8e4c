"""What a report is made from: runs, summaries, groups, statistics and the paper's tables."""
