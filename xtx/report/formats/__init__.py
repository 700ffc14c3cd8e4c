"""A report as HTML, Markdown or CSV."""
