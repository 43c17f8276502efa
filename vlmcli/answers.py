"""Answers that are data: a page's answers as one JSON object, held against a JSON Schema.

Every answer is a JSON object, and the page's object is all of them together. Asks nobody again: it
says what is wrong with which answer. Refuses schemas that refer to other files: nothing is fetched.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from vlmcli.errors import UsageError

MAX_FAULT = 200
"""Characters of a fault that are worth telling a model."""

_FENCE = re.compile(r"```(?:json)?\s*(.*?)\s*```", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The page's object, or what is wrong: by the number of the answer, from 0, in one line."""

    data: Mapping[str, Any] | None
    faults: Mapping[int, str]


class AnswerChecker:
    """Checks answers against one schema.

    Args:
        schema: as `load_schema` gives it.

    Raises:
        UsageError: it is no JSON Schema.
    """

    def __init__(self, schema: str) -> None:
        self._validator = _validator(schema)

    def check(self, answers: Sequence[str]) -> Verdict:
        """What becomes of the answers to a page's questions."""
        parts: dict[int, dict[str, Any]] = {}
        faults: dict[int, str] = {}
        for number, text in enumerate(answers):
            try:
                parts[number] = parse_object(text)
            except ValueError as error:
                faults[number] = str(error)
        if faults:
            return Verdict(data=None, faults=faults)
        data = {name: value for part in parts.values() for name, value in part.items()}
        for fault in self._validator.iter_errors(data):
            place = ".".join(map(str, fault.absolute_path))
            words = " ".join(f"{place}: {fault.message}".removeprefix(": ").split())
            first = next(iter(fault.absolute_path), None)
            guilty = [number for number, part in parts.items() if first in part]
            for number in guilty or parts:
                faults.setdefault(number, words[:MAX_FAULT])
        return Verdict(data=None if faults else data, faults=faults)


def parse_object(text: str) -> dict[str, Any]:
    """The JSON object that an answer is, with or without a Markdown fence around it.

    Raises:
        ValueError: it is none; the message says why in a few words.
    """
    fenced = _FENCE.search(text)
    try:
        found = json.loads(fenced[1] if fenced else text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg}") from error
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


def _refuse(name: str) -> None:
    raise ValueError(f"not JSON: {name}")


def load_schema(given: str) -> str:
    """A schema as `--answer-schema` names it, as compact JSON.

    Args:
        given: the path of a file, or the schema itself, which begins with a brace.

    Raises:
        UsageError: there is no such file, or it is no JSON Schema.
    """
    is_text = given.lstrip().startswith("{")
    name = "--answer-schema" if is_text else given
    try:
        text = given if is_text else Path(given).read_text(encoding="utf-8")
        schema = json.loads(text)
    except FileNotFoundError as error:
        raise UsageError(f"no such file: {given}") from error
    except OSError as error:
        raise UsageError(f"cannot read {given}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise UsageError(f"{name}, line {error.lineno}: not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not JSON: {error}") from error
    compact = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    try:
        _validator(compact)
    except UsageError as error:
        raise UsageError(f"{name}: {error.message}", remedy=error.remedy) from error
    return compact


@lru_cache(maxsize=4)
def _validator(text: str) -> Any:
    """The validator for a schema in JSON.

    Raises:
        UsageError: it is none, or refers to something outside of it.
    """
    # Only jobs with a schema pay for the library.
    import jsonschema
    import referencing
    import referencing.exceptions
    import referencing.jsonschema

    schema = json.loads(text)
    if not isinstance(schema, dict):
        raise UsageError("a schema is a JSON object")
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        place = ".".join(map(str, error.absolute_path)) or "the top"
        raise UsageError(f"not a JSON Schema: at {place}: {error.message[:MAX_FAULT]}") from error
    # A registry of its own: the library's default would fetch what a reference names.
    registry: Any = referencing.Registry()
    specification = referencing.jsonschema.DRAFT202012
    resolver = registry.with_resource("", specification.create_resource(schema)).resolver()
    for reference in _references(schema):
        try:
            if not reference.startswith("#"):
                raise UsageError(
                    f"$ref {reference} leads out of the schema", remedy="put it under $defs"
                )
            resolver.lookup(reference)
        except referencing.exceptions.Unresolvable as error:
            raise UsageError(f"$ref {reference} leads nowhere") from error
    return kind(schema, registry=registry)


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for name, value in schema.items():
            if name in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)
