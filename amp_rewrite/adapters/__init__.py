"""The rewrite as a part of other tools: a pass of Olive and a loader of Polygraphy.

Each file is for one tool, imports it, and nothing else of the package imports the file.
"""
