"""The page of the game, drawn by textual: loops on the left, the board on the right."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import DataTable, Footer, Static

from tvmscope.learn.play.game import Game
from tvmscope.learn.play.moves import PRIMITIVES, Move
from tvmscope.messages import _, render
from tvmscope.quantities import format_rate, format_s
from tvmscope.report.terminal.explain import loop_tree

KEYS = {
    "s": "split", "i": "inward", "f": "fuse", "v": "vectorize",
    "p": "parallel", "u": "unroll", "r": "registers", "z": "zeros",
}  # fmt: skip
_LARGEST = 1024


class PlayApp(App[None]):
    """Choose a loop with the arrows, a number with + and -, and a primitive by its letter."""

    CSS = "#left { width: 60%; } #loops { height: auto; } #said { height: auto; color: $warning; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "choose(-1)", "loop", key_display="↑ ↓"),
        Binding("down", "choose(1)", "loop", show=False),
        Binding("plus,equals_sign", "scale(1)", "number", key_display="+ -"),
        Binding("minus", "scale(-1)", "number", show=False),
        *(Binding(key, f"move('{name}')", name) for key, name in KEYS.items()),
        Binding("backspace", "undo", "undo"),
        Binding("m", "measure", "measure"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, game: Game, number: int) -> None:
        super().__init__()
        self.game, self.number, self.chosen = game, number, 0

    def compose(self) -> ComposeResult:
        with Horizontal():
            with Vertical(id="left"):
                yield Static(id="loops")
                yield Static(id="tree")
            with Vertical():
                yield DataTable(id="board", cursor_type="none")
                yield Static(id="said")
        yield Footer()

    def on_mount(self) -> None:
        board = self.query_one("#board", DataTable)
        board.can_focus = False  # the arrows choose a loop
        board.add_columns("", _("time"), _("GFLOP/s"))
        self._draw()

    def action_choose(self, step: int) -> None:
        position = self.game.position
        assert position is not None
        self.chosen = (self.chosen + step) % len(position.loops)
        self._draw()

    def action_scale(self, step: int) -> None:
        self.number = min(_LARGEST, max(1, self.number * 2 if step > 0 else self.number // 2))
        self._draw()

    def action_move(self, name: str) -> None:
        self.game.make(Move(name, self.chosen, self.number if PRIMITIVES[name].takes else 0))
        self._draw()

    def action_undo(self) -> None:
        self.game.undo()
        self._draw()

    def action_measure(self) -> None:
        self.game.measure()
        self._draw()

    def _draw(self) -> None:
        position = self.game.position
        assert position is not None
        self.chosen = min(self.chosen, len(position.loops) - 1)
        lines = Text(_("number: {number}").format(number=self.number) + "\n\n", style="dim")
        for place, loop in enumerate(position.loops):
            mark = "▶ " if place == self.chosen else "  "
            lines.append(f"{mark}{loop}\n", style="bold" if place == self.chosen else "")
        self.query_one("#loops", Static).update(lines)
        self.query_one("#tree", Static).update(loop_tree(position.built.tree))
        self.query_one("#said", Static).update(Text(render(self.game.said)))
        board = self.query_one("#board", DataTable)
        board.clear()
        for entry in self.game.board:
            rate = "-" if entry.gflops is None else format_rate(entry.gflops)
            board.add_row(render(entry.name), format_s(entry.seconds), rate)
