"""The training page: what a run measures, as a page that refreshes itself, and several served."""
