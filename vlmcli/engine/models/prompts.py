"""What a page reader is told for each task: a family's own documented prompts, else general ones.

Data alone; whoever adds a family adds its prompts here, with their source. An empty prompt is one:
the family was trained on pictures without a word.
"""

from collections.abc import Mapping
from typing import Literal

Task = Literal["text", "markdown", "table", "formula", "layout"]

_GENERAL: Mapping[Task, str] = {
    "text": "Read the text of this page. Write it down exactly, in reading order.",
}


def prompt_for(model_type: str, task: Task) -> str:
    """The instruction for a task, by transformers' model type."""
    return _GENERAL[task]
