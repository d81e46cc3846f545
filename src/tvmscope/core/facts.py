"""What a session keeps about the passes and schedule rules that its rows are made of.

Manifests live in the compiler. A session is read where neither the compiler nor the plug-in is
that brought one of them, so that it carries the part of them that people and diagnoses need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class RuleFacts:
    """A schedule rule, for people."""

    name: str
    words: str
    """What it does to a kernel, in a sentence."""
    version: int
    parameters: dict[str, str] = field(default_factory=dict)
    """What a parameter's value means, by `name`, or by `name=value` for a single value."""
    brought_by: str | None = None
    """The distribution and its version, of a rule that is not built in."""

    def sentence(self, parameter: str, value: int | str) -> str | None:
        """What it means that a parameter has a value; `{value}` is left to be filled in."""
        return parameter_words(self.parameters, parameter, value)


def parameter_words(words: Mapping[str, str], parameter: str, value: int | str) -> str | None:
    """The words for a single value, else those for the parameter; None where there are none."""
    return words.get(f"{parameter}={value}") or words.get(parameter)
