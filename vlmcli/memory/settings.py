"""What a plan assumes about a job: options, defaults, and the engine's limits. Plain data."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from vlmcli.documents.base import PixelSize
from vlmcli.memory.estimate import Coefficients, usual_coefficients
from vlmcli.memory.facts import ModelFacts
from vlmcli.options import DEFAULT_DPI, DEFAULT_MAX_PIXELS

DeviceKind = Literal["cpu", "cuda"]

PAGE_OUTPUT_TOKENS = 2048
"""Output that room is kept for on every page in flight: a dense A4 page has about 1,000 tokens."""
PAGE_MAX_TOKENS = 4096
"""Output that the largest page may grow to before it is cut."""
LINE_TOKENS_PER_COLUMN = 3
"""Output bytes per visual column of a line that room is kept for; usual print has 2 to 3."""
PROMPT_TOKENS = 320
"""Instruction and chat template of a page reader: 50 with the tokenizers of published models, 290
where every byte is a token. A line reader has 2 marks."""
LINES_TOGETHER = 64
"""Lines that a line reader works on at once; more do not make a step cheaper."""
TOKENS_PER_LINE = 48
"""Prompt and drafted tokens of a line in one step, on average: some 35 and 60 in its first one, few
later. Steps are cut at that. The fixed cost of a step on a CPU is that of 70 tokens, so that steps
of 64 lines could not be cheaper by more than two percent."""
LINE_READER_BYTES = 3 << 20
"""Crops that wait for a line reader: of three dense A4 pages, enough to keep its batches full."""
PAGES_IN_FLIGHT = {"cpu": 4, "cuda": 16}
"""Pages that a page reader works on at once: on a CPU more would not make decoding cheaper. A line
reader works on the lines of as many pages as it needs to fill its batches."""
SWAP_BYTES = {"cpu": 0, "cuda": 256 << 20}
"""Main memory for the KV of preempted sequences: about one page's. On a CPU it would be taken from
the same memory as the pool."""
REMOTE_BYTES_PER_PIXEL = 11
"""A page that a server reads: its picture (3), the same encoded (3 at the worst), and the body of
the request in base64 (4) while it is put together."""
LINE_PITCH_POINTS = 14.0
"""Distance of text lines assumed where a line reader's tokens are estimated."""
IMAGE_DPI = 200.0
"""Resolution assumed for images, whose tags are not to be trusted."""


class PageShape(Protocol):
    """A page that was measured, not rendered; `documents.source.PageHandle` is one."""

    @property
    def document(self) -> str:
        """Name of the document."""

    @property
    def number(self) -> int:
        """Page number from 1."""

    def pixel_size(self, dpi: float, max_pixels: int) -> PixelSize:
        """Size of the picture that rendering gives; 0 x 0 if the page cannot be loaded."""

    def is_refused(self, max_pixels: int) -> bool:
        """Whether its picture is too large to be decoded at all, and costs only itself."""

    def drawing_bytes(self, size: PixelSize, *, grey: bool) -> int:
        """What decoders hold beside the picture while the page is drawn at that size."""

    def writing_bytes(self, max_pixels: int) -> int:
        """What is held while the page's document is copied into a PDF; 0 for a PDF."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """The engine's pools, in bytes."""

    kv: int
    vision_cache: int
    embeddings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """A job's options as a plan needs them. Sizes in bytes."""

    dpi: int = DEFAULT_DPI
    max_pixels: int = DEFAULT_MAX_PIXELS
    device: DeviceKind = "cpu"
    dtype: str = "auto"
    """auto: float32 on a CPU, else the checkpoint's own."""
    kv_dtype: str = "auto"
    """auto: as `dtype`; int8 stores a byte per number and a scale per token and head."""
    vision_kv_dtype: str = "auto"
    """auto: as `kv_dtype`."""
    quantize: tuple[str, ...] = ()
    """Modes of `--quantize`."""
    max_tokens: int | None = None
    """Output tokens of a page (or line); None for what a page usually has."""
    question_tokens: int = 0
    """Of the longest question, a token a byte at the most; 0 where the text is asked for."""
    vision_cache: int | None = None
    """KV kept for further questions about a page; None for the default of the device."""
    max_pages_in_flight: int | None = None
    """None for the default of the device."""
    jobs: int = 1
    """Page workers at the most; a plan takes fewer where memory is tight."""
    writer_bytes: int = 0
    """Of the main process, for output formats that are made from the document itself."""
    writes_pdf: bool = False
    """Whether documents that are pictures are copied into PDFs."""
    remote_pages: int = 0
    """Pages that a server reads at the same time; 0 where none does."""
    draws_pages: bool = True
    """False where text layers are all that is asked for."""
    compares_pages: bool = False
    """Whether pages are compared with recent ones that look alike."""
    keeps_results: bool = False
    """Whether results are kept from run to run."""
    drafting: "Drafting | None" = None
    """A reader that reads pages before the model does."""
    block_size: int = 16
    max_num_seqs: int = 64
    max_num_batched_tokens: int | None = None
    pools: Pools | None = None
    """Pools that exist already, as in a running job; None for those that the job needs."""
    measured: Mapping[str, Coefficients] = field(default_factory=dict)
    """Coefficients that were measured for the model on this machine, by number format."""

    def weigh(self, facts: ModelFacts | None) -> Coefficients:
        """What shapes do not give: as measured here for the number format, or what is usual."""
        dtype = "float32" if facts is None else self.resolve_dtype(facts)
        return self.measured.get(dtype) or usual_coefficients(self.device, dtype)

    def resolve_dtype(self, facts: ModelFacts) -> str:
        """The number format that the engine will compute in."""
        if self.dtype != "auto":
            return self.dtype
        return "float32" if self.device == "cpu" else facts.dtype

    def resolve_kv_dtype(self, facts: ModelFacts) -> str:
        """The number format of text blocks."""
        return self.resolve_dtype(facts) if self.kv_dtype == "auto" else self.kv_dtype

    def resolve_vision_kv_dtype(self, facts: ModelFacts) -> str:
        """The number format of image blocks."""
        if self.vision_kv_dtype != "auto":
            return self.vision_kv_dtype
        return self.resolve_kv_dtype(facts)

    def resolve_vision_cache(self, facts: ModelFacts) -> int:
        """Bytes of KV that finished pages may keep; 0 for lines, of which equal ones are known."""
        if self.vision_cache is not None:
            return self.vision_cache
        return 0 if facts.reads == "lines" else 256 << 20

    def resolve_pages_in_flight(self, facts: ModelFacts) -> int:
        """Most pages at a time; a reader that is not ours has one in work and one that waits."""
        if facts.foreign is not None:
            return self.max_pages_in_flight or 2
        default = LINES_TOGETHER if facts.reads == "lines" else PAGES_IN_FLIGHT[self.device]
        return self.max_pages_in_flight or default

    def resolve_batched_tokens(self, facts: ModelFacts) -> int:
        """Most query tokens of one decoder step."""
        if self.max_num_batched_tokens is not None:
            return self.max_num_batched_tokens
        return 8192 if facts.reads == "lines" else 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSummary:
    """Visual tokens per page. `estimated` where they depend on how much is printed on a page."""

    min: int
    median: int
    p95: int
    max: int
    max_page: str
    """Document and page number of the page with the most."""
    total: int
    estimated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """Bounds that keep the engine within the plan; sizes in bytes, the rest in tokens and pages."""

    kv_cache_bytes: int
    vision_kv_bytes: int
    """Of the KV cache, what is kept for blocks of image tokens with a format of their own; 0 where
    they have none."""
    vision_cache_bytes: int
    encoder_cache_bytes: int
    swap_bytes: int
    """Of main memory, for the KV of preempted sequences on another device."""
    graph_bytes: int
    """Of captured graphs; 0 where none are."""
    encoder_graph_tokens: int
    """Visual tokens of the largest of them that is for pictures; 0 where none is."""
    max_num_seqs: int
    max_num_batched_tokens: int
    max_encoder_tokens: int
    pages_in_flight: int
    jobs: int
    overlap: bool
    """Whether a page may be drawn while another one is read."""
    worker_bytes: int
    """Of the pages that are drawn at the same time."""
    reader_bytes: int
    """Of the pixels that wait for the model or are read."""
    drafting: "Budgets | None" = None
    """Of a second engine that drafts for the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """A drafting reader in a plan: its main memory, and its bounds where it is our engine."""

    num_bytes: int
    budgets: Budgets | None = None
    line_height: int | None = None
    """Of the lines that pages are cut into for it; None where it takes pages whole."""
    max_line_width: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change that makes the job fit: what it is, and the command line that makes it."""

    description: str
    command: str
    peak_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a job will take. `terms` are bytes by name and add up to `peak_bytes`."""

    model: str
    num_parameters: int
    device: DeviceKind
    dtype: str
    kv_dtype: str
    vision_kv_dtype: str
    num_pages: int
    unreadable_pages: tuple[str, ...]
    """Pages without a plan: they cannot be loaded, or the model cannot take their shape."""
    peak_bytes: int
    cap_bytes: int
    terms: dict[str, int]
    pages_in_flight: int
    max_pages_in_flight: int
    visual_tokens: TokenSummary
    budgets: Budgets
    host_bytes: int
    """Main memory of the job beside the device; equals the peak on a CPU."""
    minimum_bytes: int
    """The least that one page in flight takes with these settings."""
    remedies: tuple[Remedy, ...]
    unverified: tuple[str, ...]
    calibrated: bool
    foreign: str = ""
    """Where the reader is not our engine: what it is, and where its figures come from."""

    @property
    def fits(self) -> bool:
        """Whether the job stays under the cap."""
        return self.peak_bytes <= self.cap_bytes

    def to_dict(self) -> dict[str, Any]:
        """The plan as one JSON object."""
        return asdict(self) | {"fits": self.fits}


def nearest_rank(values: Sequence[int], share: float) -> int:
    """The smallest value that at least `share` of the sorted `values` do not exceed."""
    return values[max(0, math.ceil(len(values) * share) - 1)]
