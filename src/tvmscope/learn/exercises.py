"""Ways to check an answer: a number that follows from the machine, or a choice of parameters."""

from __future__ import annotations

from collections.abc import Callable

from tvmscope.learn.facts import Built, Study
from tvmscope.learn.lesson import Checked, Exercise
from tvmscope.messages import Message, Text, msg
from tvmscope.parsing import parse_assignments


def number(
    question: Message, solve: Callable[[Study], int], why: Callable[[Study, int], Text]
) -> Exercise:
    """Make a question whose answer is a whole number, computed by `solve` on this machine."""

    def check(answer: str, study: Study) -> Checked:
        right = solve(study)
        try:
            given = int(answer.strip().replace(",", "").replace("_", ""))
        except ValueError:
            return Checked(right=False, words=msg("The answer is a whole number."))
        if given == right:
            return Checked(right=True, words=why(study, right))
        hint = msg("too small") if given < right else msg("too large")
        return Checked(right=False, words=msg("{given} is {hint}.", given=given, hint=hint))

    return Exercise(question=question, solution=lambda study: str(solve(study)), check=check)


def choice(question: Message, options: dict[str, Text], right: str) -> Exercise:
    """Make a question with lettered answers; each wrong answer has an explanation."""

    def check(answer: str, study: Study) -> Checked:
        given = answer.strip().lower()
        if given not in options:
            letters = ", ".join(options)
            return Checked(right=False, words=msg("Answer with one of {letters}.", letters=letters))
        return Checked(right=given == right, words=options[given])

    return Exercise(question=question, solution=lambda study: right, check=check)


def parameters(
    question: Message,
    step: str,
    solve: Callable[[Study], dict[str, int]],
    judge: Callable[[Built, dict[str, int], Study], Checked],
) -> Exercise:
    """Make a question about parameters; the step is compiled with the answer and judged."""

    def check(answer: str, study: Study) -> Checked:
        assert study.build is not None
        chosen = {name: values[0] for name, values in parse_assignments([answer]).items() if values}
        built = study.build(step, chosen)
        if not built.right:
            return Checked(right=False, words=msg("With these the result is wrong."))
        return judge(built, chosen, study)

    def solution(study: Study) -> str:
        return ",".join(f"{name}={value}" for name, value in solve(study).items())

    return Exercise(question=question, solution=solution, check=check)
