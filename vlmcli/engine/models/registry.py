"""Which model families run natively: transformers' model type to family file.

Adding a family is one entry here and one file beside it. Nothing is loaded until a family is asked
for, so that listing the families costs no torch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from vlmcli.engine.config import ModelConfig, ProcessorConfig
from vlmcli.engine.geometry import ImageGeometry
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


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """A family's own format of a conversation: turns as in ChatML, pictures between their marks.

    Attributes:
        system: what stands at the beginning where no system message is given.
        picture: what stands before and behind the tokens of a picture.
    """

    CLOSING: ClassVar[str] = "<|im_end|>\n"
    """The end of a turn."""

    system: str
    picture: tuple[str, str]

    @property
    def before(self) -> str:
        """What stands before the tokens of one picture about which one question is asked."""
        return self.system + self.opening("user") + self.picture[0]

    @property
    def after(self) -> str:
        """What stands behind them; holds `{question}`."""
        return self.picture[1] + "{question}" + self.CLOSING + self.opening("assistant")

    @staticmethod
    def opening(role: str) -> str:
        """The beginning of a turn of `system`, `user` or `assistant`."""
        return f"<|im_start|>{role}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family's functions, bound to its file."""

    model_type: str
    parse_config: Callable[[dict[str, Any], dict[str, Any]], ModelConfig]
    canonical_name: Callable[[str], str | None]
    geometry: Callable[[int, int, ProcessorConfig], ImageGeometry]
    build: "Callable[..., Model]"
    chat: ChatFormat


_MODULES = {
    "qwen2_vl": ("qwen2_vl", "Qwen2VL", "Qwen2-VL, MinerU2.5, the built-in model"),
    "qwen2_5_vl": ("qwen2_5_vl", "Qwen25VL", "Qwen2.5-VL, olmOCR, Nanonets-OCR"),
    "lighton_ocr": ("lighton_ocr", "LightOnOcr", "LightOnOCR-1B"),
    "qwen3_vl": ("qwen3_vl", "Qwen3VL", "Qwen3-VL (dense)"),
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
            remedy=f"native families: {', '.join(native_families())}",
        )
    module_name, class_name, _ = _MODULES[model_type]
    module = import_module(f"vlmcli.engine.models.{module_name}")
    return Family(
        model_type=model_type,
        parse_config=module.parse_config,
        canonical_name=module.canonical_name,
        geometry=module.geometry,
        chat=ChatFormat(*module.CHAT),
        build=cast("Callable[..., Model]", getattr(module, class_name)),
    )
