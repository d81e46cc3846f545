"""Lessons as documents: a run becomes blocks, and blocks become Markdown or a page; a lesson, run
or not, becomes a notebook whose cells measure. The command, the site and notebooks ask."""
