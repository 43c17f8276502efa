"""Which model families run natively: transformers' model type to family file.

Adding a family is one entry here and one file beside it. Nothing is loaded until a family is asked
for, so that listing the families costs no torch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from vlmcli.engine.config import ModelConfig, ProcessorConfig
from vlmcli.engine.geometry import ImageGeometry, Mosaic
from vlmcli.engine.views import Part, Pixels, whole
from vlmcli.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor

    from vlmcli.engine.kv_cache import KVCache
    from vlmcli.engine.models.decoder import StepInputs


class Model(Protocol):
    """What the runner calls on a loaded model; shapes as in `models.qwen2_vl`."""

    def encode(self, patches: "Tensor", grids: Sequence[tuple[int, int, int]]) -> "Tensor":
        """uint8 patches to visual tokens."""

    def embed(self, input_ids: "Tensor") -> "Tensor":
        """Token ids to embeddings."""

    def __call__(self, step: "StepInputs", cache: "KVCache") -> "Tensor":
        """Hidden states of the wanted rows."""

    def logits(self, hidden: "Tensor") -> "Tensor":
        """Hidden states to float32 logits."""


@runtime_checkable
class Assembler(Protocol):
    """A model of a family whose tiles become one picture behind the encoder."""

    def assemble(self, tokens: "Tensor", mosaic: Mosaic) -> "Tensor":
        """Tokens of a picture's tiles, one tile behind the other, to those of the picture."""


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """A family's own format of one question about one picture: what stands around its tokens."""

    before: str
    after: str
    """Holds `{question}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family's functions, bound to its file."""

    model_type: str
    parse_config: Callable[[dict[str, Any], dict[str, Any]], ModelConfig]
    canonical_name: Callable[[str], str | None]
    geometry: Callable[[int, int, ProcessorConfig], ImageGeometry]
    build: "Callable[..., Model]"
    chat: ChatFormat
    chats_by_token: Mapping[str, ChatFormat] = field(default_factory=dict)
    """Formats of checkpoints of the same type whose tokenizer has this special token."""
    cut: "Callable[[Pixels, ModelConfig], list[Part]] | None" = None
    """A picture to tiles and the texts between them; None where it is one view."""

    def chat_for(self, encode: Callable[[str], list[int]]) -> ChatFormat:
        """The format that a checkpoint was trained on, by what its tokenizer knows."""
        for token, chat in self.chats_by_token.items():
            if len(encode(token)) == 1:
                return chat
        return self.chat

    def parts(self, pixels: Pixels, config: ModelConfig) -> list[Part]:
        """What stands in the prompt for a picture, uint8 (H, W, 3) RGB or (H, W) grey.

        Raises:
            PageError: the model cannot take a picture of this size.
        """
        if self.cut is not None:
            return self.cut(pixels, config)
        height, width = pixels.shape[:2]
        geometry = self.geometry(width, height, config.processor)
        return whole(pixels, geometry, config)


_MODULES = {
    "dots_ocr": ("dots_ocr", "DotsOcr", "dots.ocr"),
    "idefics3": ("idefics3", "Idefics3", "Idefics3, Granite-Docling-258M, SmolDocling"),
    "internvl": ("internvl", "InternVL", "InternVL3, InternVL3.5 (-hf)"),
    "llava_onevision": ("llava_onevision", "LlavaOneVision", "LLaVA-OneVision"),
    "qwen2_vl": ("qwen2_vl", "Qwen2VL", "Qwen2-VL, MinerU2.5, the built-in model"),
    "qwen2_5_vl": ("qwen2_5_vl", "Qwen25VL", "Qwen2.5-VL, olmOCR, Nanonets-OCR"),
    "glm_ocr": ("glm_ocr", "GlmOcr", "GLM-OCR"),
    "idefics2": ("idefics2", "Idefics2", "Idefics2, pages shown whole"),
    "lighton_ocr": ("lighton_ocr", "LightOnOcr", "LightOnOCR-1B"),
    "paddleocr_vl": ("paddleocr_vl", "PaddleOcrVL", "PaddleOCR-VL"),
    "qwen3_vl": ("qwen3_vl", "Qwen3VL", "Qwen3-VL (dense)"),
    "smolvlm": ("smolvlm", "SmolVLM", "SmolVLM, SmolVLM2"),
}


def native_families() -> tuple[str, ...]:
    """Model types, as transformers names them, that the engine runs itself."""
    return tuple(sorted(_MODULES))


def published_as(model_type: str) -> str:
    """Checkpoints of a native family, for people."""
    return _MODULES[model_type][2]


def find_family(model_type: str) -> Family:
    """The family of a model type; imports torch.

    Raises:
        ModelError: no native family has that type.
    """
    if model_type not in _MODULES:
        raise ModelError(
            f"model type {model_type!r} is not supported",
            remedy="run it with --engine transformers; native families: "
            + ", ".join(native_families()),
        )
    module_name, class_name, _ = _MODULES[model_type]
    module = import_module(f"vlmcli.engine.models.{module_name}")
    return Family(
        model_type=model_type,
        parse_config=module.parse_config,
        canonical_name=module.canonical_name,
        geometry=module.geometry,
        chat=ChatFormat(*module.CHAT),
        chats_by_token={
            token: ChatFormat(*chat) for token, chat in getattr(module, "CHAT_BY_TOKEN", {}).items()
        },
        cut=getattr(module, "cut", None),
        build=cast("Callable[..., Model]", getattr(module, class_name)),
    )
