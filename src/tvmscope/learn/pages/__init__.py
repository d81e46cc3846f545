"""Lessons for readers: on the terminal, and as documents. A run becomes blocks, and blocks become
Markdown or a page; a lesson, run or not, becomes a notebook whose cells measure. The commands, the
site and notebooks ask."""
