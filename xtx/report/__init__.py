"""From run folders to statistics, tables beside the paper's, and one page. Never imports torch."""
