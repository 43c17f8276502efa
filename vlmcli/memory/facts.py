"""The shapes of a model that decide how much memory it takes, and parameter counts from them.

Pure arithmetic on published shapes: no weights, no torch. Counts are exact; the tests compare them
with transformers' own models on the meta device.
"""

from dataclasses import dataclass
from typing import Literal

from vlmcli.engine.geometry import Measure
from vlmcli.engine.weight_formats import WeightFormat

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8": 1, "int8": 1}


def linear(inputs: int, outputs: int, *, bias: bool) -> int:
    """Parameters of a linear layer."""
    return inputs * outputs + (outputs if bias else 0)


def norm(size: int, *, bias: bool) -> int:
    """Parameters of a normalisation: LayerNorm has a bias, RMSNorm has none."""
    return 2 * size if bias else size


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureFacts:
    """Mixture of experts in all decoder layers but the first `num_dense_layers`."""

    num_experts: int
    num_shared_experts: int
    intermediate_size: int
    num_dense_layers: int
    num_active_experts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderFacts:
    """A decoder-only language model with grouped-query attention and a gated MLP."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    tie_word_embeddings: bool
    has_qkv_bias: bool = False
    has_qk_norm: bool = False
    norms_per_layer: int = 2
    mixture: MixtureFacts | None = None

    @property
    def kv_values_per_token(self) -> int:
        """Key and value numbers that one token leaves in the cache, all layers together."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim

    @property
    def qkv_size(self) -> int:
        """Width of query, key and value together."""
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim

    @property
    def matrices(self) -> tuple[tuple[int, int], ...]:
        """(outputs, inputs) of the products of every layer that can be quantised.

        Experts are not among them: no family that the engine runs has any.
        """
        heads, inter = self.num_heads * self.head_dim, self.intermediate_size
        attention = ((self.qkv_size, self.hidden_size), (self.hidden_size, heads))
        mlp = ((2 * inter, self.hidden_size), (self.hidden_size, inter))
        dense = self.num_layers if self.mixture is None else self.mixture.num_dense_layers
        return self.num_layers * attention + dense * mlp

    @property
    def num_parameters(self) -> int:
        """All parameters, embedding and head included."""
        hidden, attention = self.hidden_size, self.num_heads * self.head_dim
        layer = linear(hidden, self.qkv_size, bias=self.has_qkv_bias)
        layer += linear(attention, hidden, bias=False)
        layer += self.norms_per_layer * hidden + (2 * self.head_dim if self.has_qk_norm else 0)
        embeddings = self.vocab_size * hidden * (1 if self.tie_word_embeddings else 2)
        return self.num_layers * layer + self._mlp_parameters() + hidden + embeddings

    def _mlp_parameters(self) -> int:
        dense = 3 * self.hidden_size * self.intermediate_size
        if self.mixture is None:
            return self.num_layers * dense
        mix = self.mixture
        experts = mix.num_experts + mix.num_shared_experts
        sparse = 3 * self.hidden_size * mix.intermediate_size * experts
        sparse += self.hidden_size * mix.num_experts
        return mix.num_dense_layers * dense + (self.num_layers - mix.num_dense_layers) * sparse


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerFacts:
    """A vision transformer: what its activations weigh, and its parameters."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    patch_values: int
    """Numbers in one patch of a picture: channels x side x side. Towers that take several frames
    are sent one, since a picture's frames are equal."""
    is_gated: bool = False
    has_qkv_bias: bool = True
    has_bias: bool = True
    """Bias of the output projection and of the MLP."""
    has_norm_bias: bool = True
    extra_per_layer: int = 0
    """Parameters of a layer beyond attention, MLP and two norms."""
    extra: int = 0
    """Parameters outside the layers: patch and position embedding, last norm."""

    @property
    def matrices(self) -> tuple[tuple[int, int], ...]:
        """(outputs, inputs) of the products of every block."""
        hidden, inter = self.hidden_size, self.intermediate_size
        attention = ((3 * hidden, hidden), (hidden, hidden))
        mlp = (((2 if self.is_gated else 1) * inter, hidden), (hidden, inter))
        return self.num_layers * (attention + mlp)

    @property
    def num_parameters(self) -> int:
        """All parameters of the tower, without the connector."""
        hidden, inter = self.hidden_size, self.intermediate_size
        layer = linear(hidden, 3 * hidden, bias=self.has_qkv_bias)
        layer += linear(hidden, hidden, bias=self.has_bias)
        layer += (2 if self.is_gated else 1) * linear(hidden, inter, bias=self.has_bias)
        layer += linear(inter, hidden, bias=self.has_bias)
        layer += 2 * norm(hidden, bias=self.has_norm_bias)
        return self.num_layers * (layer + self.extra_per_layer) + self.extra


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFacts:
    """A reader that is not our engine: a bound on what it takes, whose source `statement` names."""

    loaded_bytes: int
    """Of the main process, libraries and weights, beyond what it has before."""
    page_bytes: int
    """While a page is read, whatever its size."""
    bytes_per_patch: int
    """While a page is read, for each of its patches."""
    statement: str

    def reading(self, num_patches: int) -> int:
        """Bytes while a page of so many patches is read."""
        return self.page_bytes + self.bytes_per_patch * num_patches


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Everything about a model that a plan needs. Sizes in numbers, not bytes."""

    name: str
    model_type: str
    decoder: DecoderFacts
    towers: tuple[TowerFacts, ...]
    """Vision towers in the order in which a picture passes them; the first takes the patches."""
    connector_parameters: int
    """From the last tower to the decoder's width, learned breaks and DeepStack included."""
    measure: Measure
    embedding_width: int
    """Numbers in one visual token on its way to the decoder: hidden size, times DeepStack taps."""
    dtype: str = "bfloat16"
    """Of the published weights."""
    reads: Literal["page", "lines"] = "page"
    line_height: int = 28
    max_line_width: int = 1120
    stored: WeightFormat | None = None
    """Of the decoder's matrices in the checkpoint; None for `dtype`."""
    unverified: tuple[str, ...] = ()
    """Values for which no published source was at hand."""
    stored_parameters: int | None = None
    """As counted in the checkpoint's own headers, where there is one."""
    largest_tensor_bytes: int | None = None
    """Of the tensors in its weight files."""
    draft_steps: int | None = None
    """Draft tokens per visual token that become part of the prompt; None where none do."""
    draft_length: int | None = None
    """Draft tokens in every prompt, whatever the picture; None where `draft_steps` decides."""
    foreign: ForeignFacts | None = None
    """Where another program reads: then the shapes above say nothing."""

    @property
    def shape_parameters(self) -> int:
        """Parameters that follow from the shapes."""
        towers = sum(tower.num_parameters for tower in self.towers)
        return self.decoder.num_parameters + towers + self.connector_parameters

    def draft_tokens(self, visual_tokens: int) -> int:
        """Tokens at most that a draft head's reading adds to the prompt, its end mark included."""
        if self.draft_length is not None:
            return self.draft_length + 1
        return 0 if self.draft_steps is None else self.draft_steps * visual_tokens + 1

    @property
    def num_parameters(self) -> int:
        """Parameters to be held: as stored, where a checkpoint was read, else from the shapes."""
        return self.shape_parameters if self.stored_parameters is None else self.stored_parameters
