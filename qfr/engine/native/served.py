"""Calls that came apart from the text, as text: one form for all servers and for the scripted agent."""

from __future__ import annotations

from collections.abc import Sequence

from qfr.canonical import canonical
from qfr.engine.native.form import CallForm

# A call as many templates write it. Arguments stand as they were sent, also where they are no JSON.
FORM = CallForm(
    opening="",
    before_name='<tool_call>\n{"name": "',
    after_name='", "arguments": ',
    keyed=None,
    text_arguments=False,
    arguments_as_text=False,
    after_arguments="}\n</tool_call>",
    separator="\n",
    closing="",
    id_style="nine",
    several=True,
)


def written(content: str, calls: Sequence[tuple[str, str]]) -> str:
    """A turn's text from its plain text and its calls (name and arguments as sent)."""
    if not calls:
        return content
    body = FORM.separator.join(
        f"{FORM.before_name}{canonical(name)[1:-1]}{FORM.after_name}{arguments}{FORM.after_arguments}"
        for name, arguments in calls
    )
    return f"{content}\n{body}" if content else body
