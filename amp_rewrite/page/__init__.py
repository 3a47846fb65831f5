"""The report page: one HTML file that shows a rewrite, its graph and its reasons, from data."""
