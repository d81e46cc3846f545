"""The `tvmscope` command: finds the commands, and is the only module that catches every error."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from tvmscope import __version__, plugins
from tvmscope.cli.aliases import modern
from tvmscope.cli.command import PANELS, Command, Family, bind
from tvmscope.cli.library_words import SpeakingCommand, SpeakingGroup, usage_error
from tvmscope.errors import TvmscopeError, UsageError, one_line
from tvmscope.extras import explain
from tvmscope.messages import _, languages, msg, render, use_language
from tvmscope.plugins import discover
from tvmscope.report.escape import clean

NO_PLUGINS = "--no-plugins"
LANGUAGE = "--lang"
_MESSAGE_LIMIT = 2000


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"tvmscope {__version__}")
        raise typer.Exit


def build_app() -> typer.Typer:
    """Make the application with all commands; one that does not load is left out (see `doctor`)."""
    app = typer.Typer(
        name="tvmscope",
        cls=SpeakingGroup,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback(
        help=_("Compile a model with Apache TVM, verify it, measure it beside what you run today.")
    )
    def root(
        version: Annotated[
            bool,
            typer.Option(
                "--version", help=_("Print the version."), callback=_print_version, is_eager=True
            ),
        ] = False,
        no_plugins: Annotated[
            bool,
            typer.Option(NO_PLUGINS, help=_("Leave out what other installed packages bring.")),
        ] = False,
        lang: Annotated[
            str | None,
            typer.Option(
                LANGUAGE,
                metavar="LANGUAGE",
                help=_("Speak this language: en or zh. JSON stays English."),
            ),
        ] = None,
    ) -> None:
        """Declare the flags before a command; `main` has already read them."""

    found, _failures = discover("tvmscope.cli.commands", "COMMAND")
    for name, command in sorted(found.items(), key=_place):
        if isinstance(command, Family):
            app.add_typer(_family(command, name), name=name, rich_help_panel=render(command.panel))
        else:
            name = name.replace("_", "-")
            panel = render(command.panel)
            app.command(name, cls=SpeakingCommand, rich_help_panel=panel)(bind(command, name))
    return app


def _family(family: Family, name: str) -> typer.Typer:
    app = typer.Typer(cls=SpeakingGroup, help=render(family.help), no_args_is_help=True)
    for member in family.members:
        own = member.run.__name__.strip("_")
        app.command(own, cls=SpeakingCommand)(bind(member, f"{name} {own}"))
    return app


def _place(item: tuple[str, Command | Family]) -> tuple[int, str]:
    name, command = item
    return (PANELS.index(command.panel) if command.panel in PANELS else len(PANELS), name)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    args = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    for stream in (sys.stdout, sys.stderr):  # a terminal without UTF-8 shows "?", no traceback
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    # Before anything is built, because help texts name the parts of plug-ins.
    plugins.allow(NO_PLUGINS not in args)
    args = [word for word in args if word != NO_PLUGINS] or ["--help"]
    try:
        args = _speak(args) or ["--help"]
        code = build_app()(args=modern(args), prog_name="tvmscope", standalone_mode=False)
    except Exception as e:  # the one catch site: every failure ends as one line and an exit code
        return _fail(e, verbose="-v" in args or "--verbose" in args)
    finally:
        for failure in plugins.failures():
            text = _("warning: plug-in left out: {failure}").format(failure=failure)
            print(clean(text, _MESSAGE_LIMIT), file=sys.stderr)
    if code == 130:
        print(_("interrupted"), file=sys.stderr)
    return code if isinstance(code, int) else 0


def _speak(args: list[str]) -> list[str]:
    """Choose the language before any text is made; the arguments without the flag.

    It may stand anywhere, as people add it at the end.
    """
    words = [part for word in args for part in _parted(word)]
    if LANGUAGE not in words:
        return args
    place = words.index(LANGUAGE)
    wanted = words[place + 1] if place + 1 < len(words) else ""
    if wanted not in languages():
        raise UsageError(msg("{flag} takes one of {known}", flag=LANGUAGE, known=list(languages())))
    use_language(wanted)
    return words[:place] + words[place + 2 :]


def _parted(word: str) -> list[str]:
    return word.split("=", 1) if word.startswith(f"{LANGUAGE}=") else [word]


def _fail(error: Exception, *, verbose: bool) -> int:
    """Print one line on stderr and return the exit code; show the traceback only with -v."""
    if verbose:
        traceback.print_exception(error, file=sys.stderr)
    error = explain(error) or error
    # typer's own errors have moved between modules over the versions; this method has stayed.
    usage = getattr(error, "format_message", None)
    if usage is not None:
        command = getattr(getattr(error, "ctx", None), "command_path", "tvmscope")
        text = _("{problem} (see {command} --help)")
        text = text.format(problem=render(usage_error(usage())), command=command)
    elif isinstance(error, TvmscopeError):
        text = render(error.message) or type(error).__name__
    else:
        text = f"{type(error).__name__}: {one_line(error)}"
        if not verbose:
            text = _("{problem} (run with -v for the traceback)").format(problem=text)
    print(_("error: {text}").format(text=clean(text, _MESSAGE_LIMIT)), file=sys.stderr)
    return int(getattr(error, "exit_code", 1))
