"""Runs the command line: `python -m tvmscope`."""

from __future__ import annotations

import sys

from tvmscope.cli.main import main

if __name__ == "__main__":  # worker processes import this module under another name
    sys.exit(main())
