"""What a session keeps about the passes and schedule rules that its rows are made of.

Manifests live in the compiler. A session may be read where neither the compiler nor the plug-in
that brought a rule is installed: it carries what people and diagnoses need to know.
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


@dataclass(frozen=True, kw_only=True)
class PassFacts:
    """A pass that a row was compiled without, for people and diagnoses."""

    name: str
    words: str
    """What it does to a model, in a sentence."""
    kernels: str | None = None
    """A pattern of the names of kernels that it would have changed; None where that is not known
    beforehand."""
    only_unscheduled: bool = False
    """Whether it shows only in those of them that no schedule rule has an idea for."""
    finding: str = "pass-disabled"
    """The diagnosis rule that looks at what is left behind without it."""
    brought_by: str | None = None
    """The distribution and its version, of a pass that is not built in."""
