"""What a page reader is told for each task: a family's own documented prompts, else general ones.

Data alone; whoever adds a family adds its prompts here, with their source. A task that a family's
documentation has no prompt for gets the general one. An empty prompt is one: the family was trained
on pictures without a word.
"""

from collections.abc import Mapping
from typing import Literal

Task = Literal["text", "markdown", "table", "formula", "layout"]

_GENERAL: Mapping[Task, str] = {
    "text": "Read the text of this page. Write it down exactly, in reading order.",
    "markdown": "Write this page down as Markdown, exactly and in reading order: its headings, "
    "lists and tables as such, formulas as LaTeX. Write nothing else.",
    "table": "Write the tables of this page down as Markdown tables, cell by cell. Write nothing "
    "else.",
    "formula": "Write the formulas of this page down as LaTeX. Write nothing else.",
    "layout": "List the blocks of this page in reading order as JSON: of each its kind, its "
    "bounding box in pixels, and its text.",
}
_DEEPSEEK: Mapping[Task, str] = {
    "text": "Free OCR.",
    "markdown": "<|grounding|>Convert the document to markdown.",
}
"""Model card of deepseek-ai/DeepSeek-OCR."""
_LIGHT_ON: Mapping[Task, str] = {"text": "", "markdown": ""}

_OF_FAMILIES: Mapping[str, Mapping[Task, str]] = {
    "deepseek_ocr": _DEEPSEEK,
    "deepseek_ocr2": _DEEPSEEK,
    "deepseek_vl_v2": _DEEPSEEK,
    # dots_ocr/utils/prompts.py of rednote-hilab/dots.ocr: prompt_ocr and prompt_layout_only_en.
    "dots_ocr": {
        "text": "Extract the text content from this image.",
        "layout": "Please output the layout information from this PDF image, including each "
        "layout's bbox and its category. The bbox should be in the format [x1, y1, x2, y2]. The "
        "layout categories for the PDF document include ['Caption', 'Footnote', 'Formula', "
        "'List-item', 'Page-footer', 'Page-header', 'Picture', 'Section-header', 'Table', 'Text', "
        "'Title']. Do not output the corresponding text. The layout result should be in JSON "
        "format.",
    },
    # Model card of microsoft/Florence-2.
    "florence2": {"text": "<OCR>", "layout": "<OCR_WITH_REGION>"},
    # Model card of zai-org/GLM-OCR.
    "glm_ocr": {
        "text": "Text Recognition:",
        "markdown": "Text Recognition:",
        "table": "Table Recognition:",
        "formula": "Formula Recognition:",
    },
    # Model card of ibm-granite/granite-docling-258M; the answer is in DocTags.
    "granite_docling": {
        "text": "Convert this page to docling.",
        "markdown": "Convert this page to docling.",
        "table": "Convert table to OTSL.",
        "formula": "Convert formula to LaTeX.",
        "layout": "Convert this page to docling.",
    },
    # Model card of lightonai/LightOnOCR-1B-1025: a picture and no text; it answers in Markdown.
    "lighton_ocr": _LIGHT_ON,
    # Model card of PaddlePaddle/PaddleOCR-VL.
    "paddleocr_vl": {
        "text": "OCR:",
        "markdown": "OCR:",
        "table": "Table Recognition:",
        "formula": "Formula Recognition:",
    },
    # Cookbooks "document parsing" of Qwen2.5-VL and Qwen3-VL.
    "qwen2_5_vl": {"layout": "QwenVL HTML"},
    "qwen3_vl": {"markdown": "qwenvl markdown", "layout": "qwenvl html"},
}


def prompt_for(model_type: str, task: Task) -> str:
    """The instruction for a task, by transformers' model type."""
    return _OF_FAMILIES.get(model_type, {}).get(task, _GENERAL[task])
