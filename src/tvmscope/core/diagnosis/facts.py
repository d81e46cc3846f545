"""The facts that a session keeps about the passes and schedule rules of its rows.

Manifests live in the compiler. A session may be read where neither the compiler nor the plug-in
that brought a rule is installed, so it contains the facts that people and diagnoses need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class RuleFacts:
    """A schedule rule, described for people."""

    name: str
    words: str
    """What the rule does to a kernel, in a sentence."""
    version: int
    parameters: dict[str, str] = field(default_factory=dict)
    """What a parameter's value means, by `name`, or by `name=value` for a single value."""
    brought_by: str | None = None
    """The distribution and version of a rule that is not built in."""

    def sentence(self, parameter: str, value: int | str) -> str | None:
        """Return the meaning of a parameter's value; the caller fills in `{value}`."""
        return parameter_words(self.parameters, parameter, value)


def parameter_words(words: Mapping[str, str], parameter: str, value: int | str) -> str | None:
    """Return the words for a single value, else those for the parameter; None if there are none."""
    return words.get(f"{parameter}={value}") or words.get(parameter)


@dataclass(frozen=True, kw_only=True)
class PassFacts:
    """A pass that a row was compiled without, described for people and diagnoses."""

    name: str
    words: str
    """What the pass does to a model, in a sentence."""
    kernels: str | None = None
    """A pattern of the names of kernels that the pass would have changed; None if these are not
    known in advance."""
    only_unscheduled: bool = False
    """Whether the pass matters only for those of them that no specific schedule rule takes."""
    finding: str = "pass-disabled"
    """The diagnosis rule that examines the kernels left without the pass."""
    brought_by: str | None = None
    """The distribution and version of a pass that is not built in."""
