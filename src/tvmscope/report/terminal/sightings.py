"""Shows the results of two artifacts for an image, in one table."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tvmscope.core.vision import Box, BoxPair, Label, Sighting
from tvmscope.messages import _
from tvmscope.report.escape import NAME_LIMIT, clean


def render(sighting: Sighting) -> list[RenderableType]:
    """Return the image's name with the verdict, then the boxes or classes of both sides."""
    title = Text(clean(sighting.picture), style="bold")
    if sighting.failure is not None:
        return [title, Text(f"  {clean(sighting.failure, 500)}", style="red")]
    verdict = (_("the same"), "green") if sighting.same else (_("different"), "red")
    title.append("  ").append(*verdict)
    if sighting.boxes:
        return [title, _boxes(sighting.boxes)]
    if sighting.labels_before or sighting.labels_after:
        return [title, _labels(sighting)]
    return [title, Text(_("  neither finds anything above the score threshold"), style="dim")]


def _boxes(pairs: tuple[BoxPair, ...]) -> Table:
    table = _table(_("box"), _("before"), _("after"), _("score change"), _("IoU"), "")
    for pair in pairs:
        known = [box for box in (pair.before, pair.after) if box is not None]
        names = dict.fromkeys(clean(box.name, NAME_LIMIT) for box in known)
        change = pair.score_change
        table.add_row(
            Text(f"{' → '.join(names)} {_place(known[0])}"),
            *(
                Text("-" if box is None else f"{box.score:.3f}")
                for box in (pair.before, pair.after)
            ),
            Text("-" if change is None else f"{change:+.4f}"),
            Text("-" if pair.iou is None else f"{pair.iou:.4f}"),
            _mark(pair),
        )
    return table


def _place(box: Box) -> str:
    return f"[{', '.join(f'{c:.0f}' for c in box.corners)}]"


def _mark(pair: BoxPair) -> Text:
    if pair.before is not None and pair.after is not None:
        return Text("" if pair.same else _("differs"), style="red")
    text = _("only before") if pair.after is None else _("only after")
    if pair.same:
        return Text(_("{only}, at the score threshold").format(only=text), style="yellow")
    return Text(text, style="red")


def _labels(sighting: Sighting) -> Table:
    table = _table("", _("before"), "", _("after"), "")
    sides = (sighting.labels_before, sighting.labels_after)
    for index in range(max(map(len, sides))):
        cells = [cell for side in sides for cell in _label(side[index : index + 1])]
        table.add_row(Text(str(index + 1)), *cells)
    return table


def _label(found: tuple[Label, ...]) -> tuple[Text, Text]:
    if not found:
        return Text("-"), Text("")
    return Text(clean(found[0].name, NAME_LIMIT)), Text(f"{found[0].score:.2%}")


def _table(*titles: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for number, title in enumerate(titles):
        table.add_column(title, justify="left" if number == 0 else "right", overflow="fold")
    return table
