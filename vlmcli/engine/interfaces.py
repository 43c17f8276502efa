"""What the engine loop asks of the parts behind it, so that tests can put fakes in their place.

Protocols alone; `model_runner` and `tokenizer` are what stands there in earnest.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from vlmcli.engine.batch import BatchInput
from vlmcli.engine.config import BlockKind, ModelConfig
from vlmcli.engine.request import ImageInput
from vlmcli.engine.transfers import Transfers

if TYPE_CHECKING:
    import torch

    from vlmcli.engine.correction import Steps


class Pending(Protocol):
    """Embeddings that are being computed."""

    def is_done(self) -> bool:
        """Whether `wait` would not have to wait."""

    def wait(self) -> list["torch.Tensor"]:
        """The embeddings, safe to read in the steps that follow."""


class Runner(Protocol):
    """What the engine asks of the model runner; shapes as in `model_runner`."""

    model_config: ModelConfig

    @property
    def has_vision_pool(self) -> bool:
        """Whether blocks of image tokens are stored in a format, and so a pool, of their own."""

    def bytes_per_block(self, kind: BlockKind) -> int:
        """Bytes of one KV block."""

    def bytes_per_embedding(self) -> int:
        """Bytes of one visual token's embedding."""

    def allocate_kv(self, num_blocks: int, num_vision_blocks: int = 0) -> None:
        """Make the KV pool; its last `num_vision_blocks` blocks are for image tokens alone."""

    def transfer(self, transfers: Transfers) -> None:
        """Copy blocks to host memory and back."""

    @property
    def encodes_beside(self) -> bool:
        """Whether images are encoded while other steps run."""

    def encode_ahead(self, images: Sequence[ImageInput]) -> "Pending":
        """Begin with the embeddings [tokens, hidden] of each image."""

    def read_draft(
        self, embeds: Sequence["torch.Tensor"]
    ) -> list[tuple[tuple[int, ...], "Steps | None"]]:
        """Guesses at the texts of images, byte ids, and a CTC head's steps behind them.

        Empty ones without a draft head.
        """

    def execute(self, batch: BatchInput) -> "torch.Tensor":
        """Logits fp32 [R, vocab]."""


class Detokenizer(Protocol):
    """Text of one sequence, as far as it is certain."""

    def push(self, token_ids: Sequence[int]) -> str:
        """The text that these further tokens make certain."""

    def finish(self) -> str:
        """What was held back; nothing is pushed afterwards."""


class Tokenizer(Protocol):
    """Token ids to text and back."""

    @property
    def special_ids(self) -> frozenset[int]:
        """Tokens of the conversation, such as marks of turns, which decoding leaves out."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; special tokens are recognised in it, none are added."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of some tokens, special tokens left out."""

    def stream(self) -> Detokenizer:
        """A detokenizer for one sequence."""
