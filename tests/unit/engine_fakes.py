"""A model that can be computed in the head, for tests of everything around the model.

Its KV slot holds one number made of token (or image row) and position, and the next token is a hash
of all numbers of the context *as read through the block table*. So a wrong slot, position, block or
image changes the text, as it would with a real model, and `expected_tokens` knows the right text
without scheduler, blocks or batches.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from vlmcli.engine.batch import BatchInput
from vlmcli.engine.config import (
    BlockKind,
    DraftHeadConfig,
    EngineConfig,
    ModelConfig,
    ProcessorConfig,
    RopeConfig,
    TextConfig,
    VisionConfig,
)
from vlmcli.engine.engine import Engine
from vlmcli.engine.geometry import QWEN2_VL
from vlmcli.engine.positions import mrope_positions
from vlmcli.engine.request import (
    DraftSource,
    ImageInput,
    PlaceholderRange,
    Request,
    SamplingParams,
)
from vlmcli.engine.sampler import uniform
from vlmcli.engine.transfers import Transfers

VOCAB = 24
IMAGE_TOKEN = 22
STOP = 23
DRAFT_PAD, DRAFT_END = 20, 21
DRAFT_STEPS, DRAFT_LENGTH = 2, 9
BLOCK_BYTES = 100
EMBEDDING_BYTES = 8
_ODD = np.uint64(0x9E3779B97F4A7C15)


class OutOfMemory(RuntimeError):
    """What a failing device raises."""


def fake_model_config() -> ModelConfig:
    return ModelConfig(
        model_type="fake",
        text=TextConfig(
            hidden_size=2,
            num_layers=1,
            num_heads=1,
            num_kv_heads=1,
            head_dim=2,
            intermediate_size=64,
            vocab_size=VOCAB,
            rms_norm_eps=1e-6,
            max_position_embeddings=4096,
            rope=RopeConfig(theta=1e4, sections=(1, 0, 0)),
            qkv_bias=False,
            tie_word_embeddings=False,
        ),
        vision=VisionConfig(
            hidden_size=2,
            num_layers=1,
            num_heads=1,
            intermediate_size=2,
            out_hidden_size=2,
            in_channels=1,
            patch_size=1,
            temporal_patch_size=1,
            merge_size=1,
            activation="gelu",
            norm_eps=1e-6,
            rope_theta=1e4,
        ),
        processor=ProcessorConfig(
            geometry=QWEN2_VL, rescale_factor=1.0, image_mean=(0.0,), image_std=(1.0,), resample=3
        ),
        image_token_id=IMAGE_TOKEN,
        vision_start_token_id=20,
        vision_end_token_id=21,
        eos_token_ids=(STOP,),
        dtype="float32",
    )


def mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def codes(content: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """uint64 [n]: what the model keeps of tokens [n] at positions [3, n]."""
    code = content.astype(np.uint64)
    for row in positions.astype(np.uint64):
        code = mix(code * _ODD + row)
    return code


def states_of(context: np.ndarray, start: int = 0) -> np.ndarray:
    """uint64 [n]: the state behind each code of a context whose first code has index `start`."""
    places = np.arange(start + 1, start + len(context) + 1, dtype=np.uint64)
    return np.cumsum(mix(context + places * _ODD), dtype=np.uint64)


def logits_of(state: np.ndarray) -> np.ndarray:
    """float32 [rows, VOCAB] for states [rows]."""
    bits = mix(state[:, None] * _ODD + np.arange(VOCAB, dtype=np.uint64))
    logits = (bits >> np.uint64(40)).astype(np.float32) / np.float32(1 << 22)
    logits[:, IMAGE_TOKEN] = -100.0
    return logits


def pixel_code(pixels: np.ndarray) -> int:
    digest = hashlib.sha256(f"{pixels.shape}".encode() + pixels.tobytes()).digest()
    return int.from_bytes(digest[:2], "little")


def image_codes(pixels: np.ndarray) -> np.ndarray:
    """Contents of an image's tokens: one a pixel."""
    return (pixel_code(pixels) + 1) * 128.0 + np.arange(pixels.size)


class FakePending:
    """Images that are there when they have been asked for some times, and until then are not."""

    def __init__(self, runner: "FakeRunner", embeds: list[torch.Tensor], delay: int) -> None:
        self.runner, self.embeds, self.left = runner, embeds, delay

    def is_done(self) -> bool:
        self.left -= 1
        return self.left < 0

    def wait(self) -> list[torch.Tensor]:
        self.runner._maybe_fail()
        return self.embeds


class FakeRunner:
    """Stands in for the model runner."""

    def __init__(
        self,
        block_size: int,
        draft: Callable[[torch.Tensor], list[int]] | None,
        vision_block_bytes: int | None = None,
    ) -> None:
        self.model_config = fake_model_config()
        self.has_vision_pool = vision_block_bytes is not None
        self.block_bytes = {"text": BLOCK_BYTES, "vision": vision_block_bytes or BLOCK_BYTES}
        self.first_vision_slot = 0
        self.saved: dict[str, list[np.ndarray]] = {}
        self.block_size = block_size
        self.guess = draft
        self.fail = False
        self.delay: int | None = None
        self.num_passes = 0
        self.num_rows = 0
        self.encoded: list[bytes] = []
        self.kv = np.zeros(0, dtype=np.uint64)

    def bytes_per_block(self, kind: BlockKind) -> int:
        return self.block_bytes[kind]

    def bytes_per_embedding(self) -> int:
        return EMBEDDING_BYTES

    def allocate_kv(self, num_blocks: int, num_vision_blocks: int = 0) -> None:
        assert bool(num_vision_blocks) == self.has_vision_pool
        self.kv = np.zeros(num_blocks * self.block_size, dtype=np.uint64)
        self.first_vision_slot = (num_blocks - num_vision_blocks) * self.block_size

    def transfer(self, transfers: Transfers) -> None:
        size = self.block_size
        for name in transfers.dropped:
            self.saved.pop(name, None)
        for out in transfers.out:
            rows = [self.kv[block * size : (block + 1) * size].copy() for block in out.blocks]
            self.saved[out.request_id] = rows
        for back in transfers.back:
            rows = self.saved.pop(back.request_id)[back.first :]
            for block, row in zip(back.blocks, rows, strict=True):
                self.kv[block * size : (block + 1) * size] = row
        self._maybe_fail()

    def encode(self, images: Sequence[ImageInput]) -> list[torch.Tensor]:
        self._maybe_fail()
        self.encoded += [image.mm_hash for image in images]
        rows = [np.stack([image_codes(i.pixels), image_codes(i.pixels)], axis=1) for i in images]
        together = torch.from_numpy(np.concatenate(rows).astype(np.float32))
        return list(torch.split(together, [len(r) for r in rows]))

    @property
    def encodes_beside(self) -> bool:
        return self.delay is not None

    def encode_ahead(self, images: Sequence[ImageInput]) -> "FakePending":
        return FakePending(self, self.encode(images), self.delay or 0)

    def draft(self, embeds: Sequence[torch.Tensor]) -> list[tuple[int, ...]]:
        return [() if self.guess is None else tuple(self.guess(piece)) for piece in embeds]

    def read_draft(self, embeds: Sequence[torch.Tensor]) -> list[tuple[tuple[int, ...], None]]:
        return [(ids, None) for ids in self.draft(embeds)]

    def execute(self, batch: BatchInput) -> torch.Tensor:
        content = batch.input_ids.astype(np.float64)
        is_image = content == IMAGE_TOKEN
        assert np.flatnonzero(is_image).tolist() == batch.embed_rows.tolist()
        if len(batch.embeds):
            content[batch.embed_rows] = torch.cat(list(batch.embeds))[:, 0].numpy()
        slots = batch.slot_mapping
        assert len(set(slots.tolist())) == len(slots) and (slots >= self.block_size).all()
        assert is_image[slots >= self.first_vision_slot].all(), "text among image tokens alone"
        half = len(slots) // 2 if self.fail else len(slots)
        self.kv[slots[:half]] = codes(content, batch.positions)[:half]
        self._maybe_fail()
        self.num_passes += 1
        self.num_rows += len(slots)
        out = []
        for i, (table, length) in enumerate(
            zip(batch.block_tables, batch.context_lens.tolist(), strict=True)
        ):
            low, high = batch.cu_seqlens_q[i : i + 2].tolist()
            rows = batch.logit_rows[(batch.logit_rows >= low) & (batch.logit_rows < high)]
            index = np.arange(length)
            context = self.kv[
                table[index // self.block_size] * self.block_size + index % self.block_size
            ]
            if len(rows):
                out.append(logits_of(states_of(context)[rows - high + length]))
        return torch.from_numpy(np.concatenate(out) if out else np.zeros((0, VOCAB), np.float32))

    def _maybe_fail(self) -> None:
        if self.fail:
            self.fail = False
            raise OutOfMemory


def fake_draft(embeds: torch.Tensor) -> list[int]:
    """No, one or two ids for each visual token, decided by what it holds."""
    return draft_of_codes(embeds[:, 0].double().numpy())


def draft_of_codes(content: np.ndarray) -> list[int]:
    bits = mix(content.astype(np.uint64))
    return [int(b >> np.uint64(8)) % 20 for b in bits for _ in range(int(b) % (DRAFT_STEPS + 1))]


def completed(request: Request) -> Request:
    """The request as a model with the draft in its prompt is asked."""
    if not request.images:
        return request
    draft = [token for i in request.images for token in draft_of_codes(image_codes(i.pixels))]
    padded = [*draft, *[DRAFT_PAD] * DRAFT_LENGTH][:DRAFT_LENGTH]
    return replace(request, prompt_token_ids=[*request.prompt_token_ids, *padded, DRAFT_END])


class FakeTokenizer:
    """Token 0 is 'a', token 1 is 'b', and so on."""

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(chr(97 + token) for token in token_ids if token < IMAGE_TOKEN)

    def stream(self) -> "FakeTokenizer":
        return self

    def push(self, token_ids: Sequence[int]) -> str:
        return self.decode(token_ids)

    def finish(self) -> str:
        return ""


def expected_tokens(request: Request, *, seed: int = 0) -> list[int]:
    """The right answer, computed alone, token by token, without any engine."""
    content = np.array(request.prompt_token_ids, dtype=np.float64)
    for image, place in zip(request.images, request.placeholders, strict=True):
        content[place.offset : place.end] = image_codes(image.pixels)
    positions, delta = mrope_positions(len(content), request.placeholders)
    context = codes(content, positions)
    state = states_of(context)[-1:]
    out: list[int] = []
    while len(out) < request.sampling.max_tokens:
        out.append(choose(logits_of(state)[0], request.sampling, seed, len(out)))
        if out[-1] in (request.sampling.stop_token_ids or (STOP,)):
            break
        index = len(context) + len(out) - 1
        new = codes(np.array([float(out[-1])]), np.full((3, 1), index + delta))
        state = state + states_of(new, start=index)
    return out


def choose(logits: np.ndarray, sampling: SamplingParams, seed: int, step: int) -> int:
    if sampling.temperature == 0:
        return int(logits.argmax())
    probs = np.exp((logits - logits.max()) / sampling.temperature)
    order = np.argsort(-probs, kind="stable")
    probs = probs[order] / probs.sum()
    probs[np.cumsum(probs) - probs >= sampling.top_p] = 0.0
    number = uniform(np.array([seed], np.uint64), np.array([step], np.uint64))[0]
    return int(order[int((np.cumsum(probs) <= number * probs.sum()).sum())])


def picture(code: int, rows: int, columns: int) -> ImageInput:
    """An image of `rows × columns` tokens; equal codes and sizes give equal images."""
    rng = np.random.default_rng(code)
    pixels = rng.integers(0, 256, (rows, columns), dtype=np.uint8)
    digest = hashlib.sha256(f"{pixels.shape}".encode() + pixels.tobytes()).digest()
    return ImageInput(pixels=pixels, mm_hash=digest)


def make_request(
    request_id: str,
    parts: Sequence[int | ImageInput],
    *,
    drafts: tuple[DraftSource, ...] = (),
    **sampling: object,
) -> Request:
    """A prompt of token ids and images in the order in which they come."""
    tokens: list[int] = []
    images: list[ImageInput] = []
    places: list[PlaceholderRange] = []
    for part in parts:
        if isinstance(part, int):
            tokens.append(part)
            continue
        rows, columns = part.pixels.shape
        size = rows * columns
        places.append(PlaceholderRange(offset=len(tokens), length=size, grid=(1, rows, columns)))
        images.append(part)
        tokens += [IMAGE_TOKEN] * size
    return Request(
        request_id=request_id,
        prompt_token_ids=tokens,
        images=tuple(images),
        placeholders=tuple(places),
        sampling=SamplingParams(**{"max_tokens": 12, **sampling}),  # type: ignore[arg-type]
        drafts=drafts,
    )


def fake_engine(
    *,
    pool_tokens: int = 800,
    block_size: int = 4,
    draft: Callable[[torch.Tensor], list[int]] | None = None,
    draft_in_prompt: bool = False,
    vision_block_bytes: int | None = None,
    delay: int | None = None,
    **config: object,
) -> Engine:
    """An engine over the fake model; `config` overrides fields of `EngineConfig`.

    With `vision_block_bytes` image tokens have a pool of their own; with `delay` images are encoded
    beside other steps and are there when that was asked so often.
    """
    values: dict[str, object] = {
        "block_size": block_size,
        "kv_cache_bytes": (pool_tokens // block_size + 1) * BLOCK_BYTES,
        "encoder_cache_bytes": 1000 * EMBEDDING_BYTES,
        "vision_cache_bytes": 20 * BLOCK_BYTES,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
        "max_encoder_tokens": 64,
        "max_draft_tokens": 16,
        **config,
    }
    runner = FakeRunner(block_size, draft, vision_block_bytes)
    runner.delay = delay
    if draft_in_prompt:
        head = DraftHeadConfig(
            steps=DRAFT_STEPS,
            width=1,
            reach=0,
            prompt_length=DRAFT_LENGTH,
            pad_token_id=DRAFT_PAD,
            draft_end_token_id=DRAFT_END,
        )
        runner.guess = fake_draft
        runner.model_config = replace(runner.model_config, draft_head=head)
    return Engine(runner, FakeTokenizer(), EngineConfig(**values))  # type: ignore[arg-type]


def runner_of(engine: Engine) -> FakeRunner:
    runner = engine._runner
    assert isinstance(runner, FakeRunner)
    return runner
