"""How flags are declared: their panels, their defaults, and what counts as given."""

from __future__ import annotations

from typing import Any

import typer


def option(panel: str, *names: str, default: str = "", **more: Any) -> Any:
    """Make a `typer.Option` that only displays its `default`; the options' dataclass holds the
    value."""
    return typer.Option(*names, rich_help_panel=panel, show_default=default or False, **more)


def given(**values: Any) -> dict[str, Any]:
    """Return the flags that were given."""
    return {k: v for k, v in values.items() if v is not None and v != () and v != {}}


def names(texts: list[str] | None) -> tuple[str, ...]:
    """`--x a,b --x c` -> (a, b, c)."""
    return tuple(p.strip() for t in texts or () for p in t.split(",") if p.strip())
