"""The arguments of a call: read once, in the one way that the call's owner will read them.

Models and servers write arguments as JSON text, as an object, as JSON text inside JSON text, as free text, and
sometimes as something that is none of these. `read_arguments` gives the object that rules judge, and keeps
the wrapping, so that changed arguments go on in the shape that they came in.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from proxy.core.calls import Kind, ToolCall
from proxy.core.jsontext import Object, Reading, nests_deeper, parse_exact, render_text

MAX_NESTING = 128


class Wrapping(Enum):
    """How an arguments object stands on the wire."""

    TEXT = auto()  # JSON text in a string
    OBJECT = auto()  # the object itself
    TWICE = auto()  # JSON text in a string, in JSON text in a string
    INPUT = auto()  # free text of a custom tool: {"input": text}


@dataclass(frozen=True, slots=True)
class Arguments:
    """`value` is the object that rules judge (None: the text is no JSON object; `problem` then says why).

    `canonical` is the text to surface in place of a text that can be read in two ways; None where that is not so.
    """

    value: Object | None
    wrapping: Wrapping
    canonical: str | None = None
    problem: str = ""


def read_arguments(call: ToolCall, nesting: int = MAX_NESTING) -> Arguments:
    """What a call's arguments say. Never raises."""
    if call.kind is Kind.CUSTOM:
        return Arguments({"input": call.text}, Wrapping.INPUT)
    wrapping = Wrapping.OBJECT if call.unwrapped else Wrapping.TEXT
    if not call.text.strip():
        return Arguments({}, wrapping)
    try:
        reading = _read(call.text, nesting)
        unambiguous = reading.unambiguous
        if isinstance(reading.value, str) and wrapping is Wrapping.TEXT:
            wrapping = Wrapping.TWICE
            reading = _read(reading.value, nesting)
            unambiguous = unambiguous and reading.unambiguous
    except ValueError as error:
        return Arguments(None, wrapping, problem=str(error))
    if not isinstance(reading.value, dict):
        return Arguments(None, wrapping, problem="it is no JSON object")
    canonical = None if unambiguous else render_arguments(reading.value, wrapping)
    return Arguments(reading.value, wrapping, canonical)


def _read(text: str, nesting: int) -> Reading:
    if nests_deeper(text.encode("utf-8", "surrogatepass"), nesting):
        raise ValueError(f"nested deeper than {nesting}")
    return parse_exact(text)


def render_arguments(value: Object, wrapping: Wrapping) -> str:
    """An arguments object as the text of a call (`ToolCall.text`) in that wrapping."""
    if wrapping is Wrapping.INPUT and isinstance(text := value.get("input"), str):
        return text
    return render_text(render_text(value)) if wrapping is Wrapping.TWICE else render_text(value)
