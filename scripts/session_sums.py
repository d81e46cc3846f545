"""Check a session's profiles by a GPU's clock: kernels, gaps and edges are the traced run.

python scripts/session_sums.py SESSION [--within 0.03] [-o OUT.json]

The union of the kernels' intervals (their sum less what overlaps), the gaps between them and the
edges before the first and behind the last must be the traced run. Shows what tracing itself cost.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tvmscope.core.profile import Profile
from tvmscope.core.session import load


def main() -> int:
    """Parse, check, write, and say what does not add up."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("session", type=Path)
    parser.add_argument("--within", type=float, default=0.03)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    rows = [row(p) for p in load(arguments.session).profiles if p.device is not None]
    wrong = problems(rows, arguments.within)
    if arguments.output:
        arguments.output.write_text(json.dumps({"rows": rows, "problems": wrong}, indent=1))
    for each in rows:
        print(
            f"{each['row']}: union {each['union_s'] * 1e6:.1f} us + gaps {each['gap_s'] * 1e6:.1f}"
            f" + edges {each['edge_s'] * 1e6:.1f} = {each['ratio']:.4f} of the traced run;"
            f" tracing {each['tracing']:.2f}x of a plain run"
        )
    print(f"{len(rows)} profiles by the device's clock; {'; '.join(wrong) or 'all add up'}")
    return 1 if wrong else 0


def row(profile: Profile) -> dict[str, Any]:
    """One profile's parts."""
    times = profile.device
    assert times is not None
    union = profile.total_s - times.overlap_s
    return {
        "row": profile.key.name,
        "union_s": union,
        "gap_s": times.gap_s,
        "edge_s": times.edge_s,
        "launches": times.launches,
        "traced_s": profile.profiled_s,
        "ratio": (union + times.gap_s + times.edge_s) / profile.profiled_s,
        "tracing": profile.profiled_s / profile.end_to_end_s,
    }


def problems(rows: list[dict[str, Any]], within: float) -> list[str]:
    """What is wrong, in words."""
    if not rows:
        return ["no profile has a GPU's own time stamps"]
    return [f"{r['row']} is off by {r['ratio'] - 1:+.1%}"
            for r in rows if abs(r["ratio"] - 1) > within]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
