"""The engine: requests in, tokens and text out, one step at a time.

Ties the scheduler's integers to the model runner's tensors and owns nothing of either. A step that
fails leaves the engine whole: its sequences go back to their queues and its blocks are forgotten,
so the caller may step again, abort somebody, or give up. Knows no files, no pages and no terminal,
and never decides on its own that an answer is bad. Given up: more than one thread may not call it.
"""

from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from pathlib import Path
from time import perf_counter

import numpy as np

from vlmcli.engine.batch import build_batch
from vlmcli.engine.block_manager import BlockManager
from vlmcli.engine.config import EngineConfig
from vlmcli.engine.drafts import DRAFT_HEAD_SOURCE, DRAFT_HEAD_WEIGHT, AcceptanceRates, Drafter
from vlmcli.engine.images import ImageStore
from vlmcli.engine.interfaces import Runner, Tokenizer
from vlmcli.engine.live import Live, share_encoding, share_time
from vlmcli.engine.lookahead import Lookahead
from vlmcli.engine.model_runner import ModelRunner
from vlmcli.engine.pool import size_pool
from vlmcli.engine.positions import mrope_positions, rope_positions
from vlmcli.engine.request import (
    DraftSource,
    FinishReason,
    Request,
    RequestOutput,
    RequestTooLargeError,
)
from vlmcli.engine.sampler import choose_tokens, derive_seed
from vlmcli.engine.scheduler import Scheduler
from vlmcli.engine.sequence import Sequence
from vlmcli.engine.step import EncodeJob, ScheduledSequence, SchedulerOutput
from vlmcli.engine.swap import SwapCost, SwapSpace
from vlmcli.engine.tokenizer import load_tokenizer
from vlmcli.engine.verify import count_accepted, cut_at_stop
from vlmcli.engine.vision_kv import VisionKVCache

_OVERHEAD_ROWS = {"cpu": 70.0, "cuda": 256.0}
"""Fixed cost of a decoder pass in rows, by device type. On the CPU as measured with the built-in
model, one thread: 2 to 3 ms a pass and 35 µs a row. On CUDA an estimate: from about there on a pass
is no longer bound by reading the weights."""
_LONG_ANSWER = 512
"""Token limit from which a sequence's own output is searched for repetitions; on single lines the
search costs 4 % and finds nothing."""
_COUNTERS = (
    "steps",
    "encoder_batches",
    "encoder_tokens",
    "decoder_batches",
    "decoder_rows",
    "sequence_steps",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "drafted_tokens",
    "accepted_tokens",
    "requests_finished",
)


class Engine:
    """Runs many requests at once on one model.

    Args:
        runner: a loaded model; its KV pool is allocated here.
        tokenizer: turns token ids into text.
        config: bounds of every pool and batch.

    Raises:
        WillNotFitError: `kv_cache_bytes` does not hold a single block.
    """

    def __init__(self, runner: Runner, tokenizer: Tokenizer, config: EngineConfig) -> None:
        self.config = config
        self.model_config = runner.model_config
        self._runner = runner
        self._tokenizer = tokenizer
        pool = size_pool(runner, config)
        runner.allocate_kv(pool.num_blocks, pool.num_vision_blocks)
        self._blocks = BlockManager(
            pool.num_blocks,
            config.block_size,
            cache=VisionKVCache(config.vision_cache_bytes, pool.block_bytes),
            quotas=pool.quotas,
            num_vision_blocks=pool.num_vision_blocks,
            enable_prefix_caching=config.enable_prefix_caching,
        )
        self.images = ImageStore(runner, config)
        self._scheduler = Scheduler(
            config,
            self._blocks,
            self.images.embeddings,
            SwapSpace(
                config.swap_bytes,
                SwapCost.of(self.model_config.text, config.device),
                self._blocks,
                pool.block_bytes,
            ),
            embedding_bytes=runner.bytes_per_embedding(),
            overhead_rows=_OVERHEAD_ROWS.get(config.device.partition(":")[0], 64.0),
            encodes_beside=runner.encodes_beside,
            on_open=self._complete_prompt,
            on_admit=self._add_draft_head,
        )
        self._ahead = Lookahead(self.images, self._scheduler)
        self._rates = AcceptanceRates()
        self._live: dict[str, Live] = {}
        self._num_added = 0
        self._counts = dict.fromkeys(_COUNTERS, 0)
        self._sources: Counter[str] = Counter()

    @classmethod
    def from_checkpoint(cls, path: Path, config: EngineConfig) -> "Engine":
        """Load a checkpoint directory in Hugging Face format.

        Raises:
            ModelError: the checkpoint is incomplete, unsupported, or contradicts its config.
            WillNotFitError: `kv_cache_bytes` does not hold a single block.
        """
        runner = ModelRunner.from_checkpoint(path, config)
        return cls(runner, load_tokenizer(path), config)

    def add_request(self, request: Request) -> None:
        """Take a request; it is worked on by `step`.

        Raises:
            RequestTooLargeError: it can never fit into the pools or the model's positions.
            ValueError: an unfinished request has the same id.
        """
        if request.request_id in self._live:
            raise ValueError(f"request id {request.request_id!r} is in use")
        sequence = self._make_sequence(request)
        self._scheduler.add(sequence)
        self._live[request.request_id] = Live(sequence, self._tokenizer.stream())

    def abort_request(self, request_id: str) -> RequestOutput | None:
        """Stop a request and free all that it holds; None where no such request is unfinished."""
        live = self._live.get(request_id)
        if live is None:
            return None
        self._finish(live, "aborted")
        return live.output()

    def has_unfinished(self) -> bool:
        """Whether `step` has something to do."""
        return bool(self._live)

    def step(self) -> list[RequestOutput]:
        """Do one encoder or decoder batch.

        Returns:
            One output for every sequence that gained tokens.

        Raises:
            Exception: whatever the model runner raised; all requests are unfinished as before.
        """
        if not self._live:
            return []
        self._collect(wait=False)
        output = self._scheduler.schedule()
        if not (output.encode or output.batch):
            self._collect(wait=True)
            output = self._scheduler.schedule()
        self._counts["steps"] += 1
        if output.encode:
            self._encode(output.encode)
            return []
        return self._compute(output)

    def generate(self, requests: Iterable[Request]) -> list[RequestOutput]:
        """Run requests to their ends; outputs in the order of the requests.

        Raises:
            RequestTooLargeError: one of them can never fit; none of them is left behind.
        """
        wanted: list[str] = []
        try:
            for request in requests:
                self.add_request(request)
                wanted.append(request.request_id)
        except (RequestTooLargeError, ValueError):
            for request_id in wanted:
                self.abort_request(request_id)
            raise
        outputs: dict[str, RequestOutput] = {}
        while any(request_id in self._live for request_id in wanted):
            for output in self.step():
                outputs[output.request_id] = output
        return [outputs[request_id] for request_id in wanted]

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; special tokens are recognised in it, none are added."""
        return self._tokenizer.encode(text)

    def is_plain(self, text: str) -> bool:
        """Whether a text holds none of the model's control tokens, such as marks of turns."""
        control = self._tokenizer.special_ids | {self.model_config.image_token_id}
        return control.isdisjoint(self._tokenizer.encode(text))

    def decode(self, token_ids: Seq[int]) -> str:
        """The text of some tokens, special tokens left out."""
        return self._tokenizer.decode(token_ids)

    def drop_caches(self) -> None:
        """Give up the embeddings that no request needs any more."""
        self.images.embeddings.drop_idle()

    def stats(self) -> dict[str, float]:
        """Counters since the start and the state of the pools, by name.

        `images_reused` counts how often an image was shown without being encoded for it; every tile
        of a tiled family is an image.

        Of every draft source that finished requests had: `drafts.<name>.guessed` and `.right`
        (output tokens foreseen, and rightly), `.drafted` and `.accepted` (tokens verified, and
        kept).
        """
        blocks, embeddings = self._blocks, self.images.embeddings
        out: dict[str, float] = {**self._counts, **self._sources}
        out |= {
            "preemptions": self._scheduler.num_preemptions,
            "swapped_out": self._scheduler.swap.num_out,
            "swapped_back": self._scheduler.swap.num_back,
            "images_encoded": embeddings.num_misses,
            "images_reused": max(0, self._scheduler.num_images_shown - embeddings.num_misses),
            "embedding_hits": embeddings.num_hits,
            "embedding_bytes": embeddings.num_bytes,
            "vision_cache_bytes": blocks.cache.num_bytes,
            "vision_blocks_evicted": blocks.cache.num_evicted,
            "blocks_used": blocks.num_used_blocks,
            "blocks_free": blocks.num_free_blocks,
            "blocks_retained": blocks.cache.num_idle,
        }
        for name, length in self._scheduler.queue_lengths().items():
            out[f"queue_{name}"] = length
        return out

    def check_integrity(self) -> None:
        """Assert that every block, embedding and queue entry is accounted for."""
        self._scheduler.check_integrity()
        assert {s.request_id for s in self._scheduler} == set(self._live)

    def _make_sequence(self, request: Request) -> Sequence:
        config = self.model_config
        sampling = request.sampling
        num_open = config.num_draft_tokens if request.images else 0
        num_prompt = len(request.prompt_token_ids) + num_open
        positions, delta = (
            mrope_positions(num_prompt, request.placeholders)
            if config.uses_mrope
            else rope_positions(num_prompt)
        )
        limit = config.text.max_position_embeddings
        if num_prompt + delta + sampling.max_tokens > limit:
            raise RequestTooLargeError(
                f"request {request.request_id} needs {num_prompt + delta + sampling.max_tokens} "
                f"positions, the model has {limit}",
                remedy="fewer pixels or fewer new tokens",
            )
        stops = sampling.stop_token_ids or config.eos_token_ids
        drafter = None
        if self.config.enable_drafts:
            drafter = Drafter(
                request.drafts,
                stop_token_id=stops[0] if stops else None,
                rates=self._rates,
                own_output=self.config.draft_own_output and sampling.max_tokens >= _LONG_ANSWER,
            )
        self._num_added += 1
        return Sequence(
            request,
            arrival=(request.rank, self._num_added),
            positions=positions,
            position_delta=delta,
            stop_token_ids=frozenset(stops),
            seed=derive_seed(request, self.config.seed),
            drafter=drafter,
            num_open_tokens=num_open,
        )

    def _complete_prompt(self, sequence: Sequence) -> None:
        """Write the drafts of all images behind an open prompt, once all of them are known."""
        head = self.model_config.draft_head
        assert head is not None
        drafts = sequence.image_drafts
        for i, image in enumerate(sequence.request.images):
            if drafts[i] is None:
                drafts[i] = self.images.draft_of(image.mm_hash)
        known = [draft for draft in drafts if draft is not None]
        if len(known) == len(drafts):
            sequence.complete(head.in_prompt(b"".join(known)))

    def _add_draft_head(self, sequence: Sequence) -> None:
        """Give an admitted sequence the draft head's reading of its images, if all are at hand."""
        drafter = sequence.drafter
        if drafter is None or sequence.num_preemptions or not self.config.draft_head:
            return
        drafts = [self.images.draft_of(image.mm_hash) for image in sequence.request.images]
        guess = b"".join(draft or b"" for draft in drafts)
        if guess and None not in drafts:
            drafter.add(
                DraftSource(
                    name=DRAFT_HEAD_SOURCE, token_ids=tuple(guess), weight=DRAFT_HEAD_WEIGHT
                )
            )

    def _encode(self, jobs: tuple[EncodeJob, ...]) -> None:
        self._ahead.start(jobs)
        self._counts["encoder_batches"] += 1
        self._counts["encoder_tokens"] += sum(job.num_tokens for job in jobs)
        self._collect(wait=False)

    def _collect(self, *, wait: bool) -> None:
        """File the images that are encoded by now, or wait for those that are on their way."""
        found = self._ahead.collect(wait=wait)
        if found is not None:
            share_encoding(self._live, *found)

    def _compute(self, output: SchedulerOutput) -> list[RequestOutput]:
        """Run a decoder batch, keep what verification allows, and report the sequences."""
        started = perf_counter()
        is_done = False
        try:
            if output.transfers:
                self._runner.transfer(output.transfers)
            batch = build_batch(output.batch, self.config.block_size, self.images.embedding)
            logits = self._runner.execute(batch)
            wanted = [item for item in output.batch if item.wants_logits]
            chosen, logprobs = choose_tokens(wanted, logits)
            num_accepted = count_accepted(
                np.array(chosen, dtype=np.int64),
                np.array([t for item in wanted for t in item.draft.token_ids], dtype=np.int64),
                np.array([len(item.draft.token_ids) for item in wanted], dtype=np.int64),
            ).tolist()
            is_done = True
        finally:
            if not is_done:
                self._scheduler.rollback(output)
        num_rows = share_time(output.batch, perf_counter() - started)
        self._counts["decoder_batches"] += 1
        self._counts["decoder_rows"] += num_rows
        outputs: list[RequestOutput] = []
        row = 0
        for item in output.batch:
            if not item.wants_logits:
                self._scheduler.computed(item, 0, [], [])
                continue
            end = row + 1 + num_accepted[len(outputs)]
            outputs.append(
                self._advance(item, chosen[row:end], logprobs[row:end] if logprobs else [])
            )
            row += 1 + len(item.draft.token_ids)
        return outputs

    def _advance(
        self, item: ScheduledSequence, tokens: list[int], logprobs: list[float]
    ) -> RequestOutput:
        """Append the accepted draft and the model's own token to a sequence."""
        sequence = item.sequence
        live = self._live[sequence.request_id]
        num_kept, is_stopped = cut_at_stop(
            tokens, sequence.stop_token_ids, sequence.num_remaining_tokens
        )
        logprobs = logprobs[:num_kept] if sequence.request.sampling.logprobs else []
        num_accepted = len(tokens) - 1
        tokens = tokens[:num_kept]
        self._scheduler.computed(item, num_accepted, tokens, logprobs)
        live.text += live.detokenizer.push(tokens[:-1] if is_stopped else tokens)
        self._counts["sequence_steps"] += 1
        self._counts["output_tokens"] += num_kept
        self._counts["drafted_tokens"] += len(item.draft.token_ids)
        self._counts["accepted_tokens"] += min(num_accepted, num_kept)
        if is_stopped:
            self._finish(live, "stop")
        elif not sequence.num_remaining_tokens:
            self._finish(live, "length")
        return live.output()

    def _finish(self, live: Live, reason: FinishReason) -> None:
        self._scheduler.finish(live.sequence, reason)
        live.text += live.detokenizer.finish()
        sequence = live.sequence
        del self._live[sequence.request_id]
        self._counts["requests_finished"] += 1
        self._counts["prompt_tokens"] += sequence.num_prompt_tokens
        self._counts["cached_tokens"] += sequence.num_cached_tokens
        if sequence.drafter is not None:
            self._sources.update(sequence.drafter.statistics())
